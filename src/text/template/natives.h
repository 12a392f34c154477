// The tables of functions that templates can call: filters, tests, methods and globals. Each function is one line:
// name, parameters, function.
//
// `parameters` lists names in order, separated by spaces. "?" after a name makes the parameter optional; its value is
// then absent if the call omits it. "/" at the front makes all parameters positional-only. The value that a filter,
// test or method is applied to is passed as `self` and not listed. `variadic` functions receive the arguments as
// written.
#pragma once

#include <span>
#include <string_view>

#include "text/template/value.h"

namespace millrace::jinja {

struct Native {
  std::string_view name;
  std::string_view parameters;
  Value (*function)(Runtime& rt, const Value& self, std::span<const Value> args) = nullptr;
  Value (*variadic)(Runtime& rt, const Value& self, Args& args) = nullptr;
};

const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_method(const Value& self, std::string_view name);
const Native* find_global(std::string_view name);
// Returns true for methods that modify a list or a dict, which the sandbox rejects.
bool is_mutating_method(const Value& self, std::string_view name);

std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> selection_filters();

Value call_native(Runtime& rt, const Native& native, const Value& self, Args& args);

// Return an argument after a check of its type. `what`: name of the function, for messages.
Int int_arg(const Value& v, const char* what);
Int int_arg(const Value& v, const char* what, Int otherwise);
bool bool_arg(const Value& v, bool otherwise);
std::string_view text_arg(const Value& v, const char* what);

}  // namespace millrace::jinja
