// The tables of what templates can call: filters, tests, methods and global functions. One line each:
// name, parameters, function.
//
// `parameters` lists names in order, separated by spaces; "?" after a name makes it optional (its value
// is then absent), "/" at the front makes all of them positional only. The value that a filter, test or
// method works on comes first and is not listed. Functions with `variadic` get the arguments unbound.
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
// Methods that would change a list or a dict; the sandbox refuses them.
bool is_mutating_method(const Value& self, std::string_view name);

std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> selection_filters();

Value call_native(Runtime& rt, const Native& native, const Value& self, Args& args);

// Checked reading of arguments; `what` names the function for the message.
Int int_arg(const Value& v, const char* what);
Int int_arg(const Value& v, const char* what, Int otherwise);
bool bool_arg(const Value& v, bool otherwise);
std::string_view text_arg(const Value& v, const char* what);

}  // namespace millrace::jinja
