// The tables of functions that templates can call: filters, tests, methods and globals. One line each: name,
// parameters, function.
//
// `parameters` lists names in order, separated by spaces; "?" after a name makes it optional (its value is absent if
// not given), "/" at the front makes all of them positional-only. The value that a filter, test or method applies to is
// the first argument and is not listed. Functions with `variadic` receive the arguments unbound.
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
// Methods that modify a list or a dict; the sandbox rejects them.
bool is_mutating_method(const Value& self, std::string_view name);

std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> selection_filters();

Value call_native(Runtime& rt, const Native& native, const Value& self, Args& args);

// Type-checked access to arguments; `what` names the function in error messages.
Int int_arg(const Value& v, const char* what);
Int int_arg(const Value& v, const char* what, Int otherwise);
bool bool_arg(const Value& v, bool otherwise);
std::string_view text_arg(const Value& v, const char* what);

}  // namespace millrace::jinja
