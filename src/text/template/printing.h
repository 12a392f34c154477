// Converts values to text, like Python's str(), repr() and json.dumps().
#pragma once

#include <string>
#include <string_view>

#include "text/template/value.h"

namespace millrace::jinja {

std::string to_string(Int v);
std::string float_repr(double v);
std::string quote(std::string_view text);  // repr() of a str
std::string repr(Runtime& rt, const Value& v);
std::string str(Runtime& rt, const Value& v);  // text that {{ v }} prints

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Runtime& rt, const Value& v, const JsonStyle& style);

// Format text like Python's '%' operator and str.format(). Both reject widths for which the text would be too long.
std::string percent_format(Runtime& rt, std::string_view format, const Value& args);
std::string brace_format(Runtime& rt, std::string_view format, Args& args);
std::string format_value(Runtime& rt, const Value& v, std::string_view spec);  // format(v, spec)

}  // namespace millrace::jinja
