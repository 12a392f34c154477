#include "text/template/natives.h"

#include <fmt/format.h>

#include <array>

#include "text/template/operators.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

constexpr size_t kMaxParameters = 8;

struct Parameter {
  std::string_view name;
  bool optional;
};

size_t parse_parameters(std::string_view text, std::array<Parameter, kMaxParameters>& out) {
  size_t n = 0;
  while (!text.empty()) {
    size_t space = text.find(' ');
    std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
    if (word.empty()) continue;
    bool optional = word.back() == '?';
    if (optional) word.remove_suffix(1);
    out[n++] = {word, optional};
  }
  return n;
}

}  // namespace

Value call_native(Runtime& rt, const Native& native, const Value& self, Args& args) {
  if (native.variadic) return native.variadic(rt, self, args);
  std::string_view text = native.parameters;
  bool positional_only = text.substr(0, 1) == "/";
  if (positional_only) text.remove_prefix(1);
  std::array<Parameter, kMaxParameters> parameters;
  size_t n = parse_parameters(text, parameters);
  if (args.positional.size() > n) {
    fail(fmt::format("{}() takes at most {} argument{} ({} given)", native.name, n, n == 1 ? "" : "s",
                     args.positional.size()));
  }
  if (positional_only && !args.named.empty()) fail(fmt::format("{}() takes no keyword arguments", native.name));
  std::array<Value, kMaxParameters> bound;
  for (size_t i = 0; i < n; ++i) bound[i] = i < args.positional.size() ? args.positional[i] : Value::absent();
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < n && parameters[i].name != name) ++i;
    if (i == n) fail(fmt::format("{}() got an unexpected keyword argument '{}'", native.name, name));
    if (!bound[i].is_absent()) fail(fmt::format("{}() got multiple values for argument '{}'", native.name, name));
    bound[i] = value;
  }
  for (size_t i = 0; i < n; ++i) {
    if (bound[i].is_absent() && !parameters[i].optional) {
      fail(fmt::format("{}() missing 1 required positional argument: '{}'", native.name, parameters[i].name));
    }
  }
  return native.function(rt, self, std::span<const Value>(bound.data(), n));
}

Int int_arg(const Value& v, const char* what) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_integral()) fail(fmt::format("{}: '{}' object cannot be interpreted as an integer", what, type_name(v)));
  return v.as_int();
}

Int int_arg(const Value& v, const char* what, Int otherwise) { return v.is_absent() ? otherwise : int_arg(v, what); }

bool bool_arg(const Value& v, bool otherwise) { return v.is_absent() ? otherwise : truthy(v); }

std::string_view text_arg(const Value& v, const char* what) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_string()) fail(fmt::format("{}: argument must be str, not {}", what, type_name(v)));
  return v.text();
}

}  // namespace millrace::jinja
