// Splits a template into tokens and applies whitespace control, so that a data token is exactly the text to print.
//
//   text {%- if x -%} text {{ y }} text {# note #} {% raw %} {{ as is }} {% endraw %}
//
//   -   strips whitespace on its side                 +   keeps whitespace that the next settings would remove
//   trim_blocks: the newline directly after %} or #} is removed
//   lstrip_blocks: blanks between the start of a line and {% or {# are removed
// One newline at the very end of the source is removed; \r\n and \r count as \n.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace millrace::jinja {

enum class TokenType : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,  // text is the value, with resolved escapes
  integer,
  floating,
  op,  // text is the operator as written
  end,
};

struct Token {
  TokenType type;
  int line;
  std::string text;
  Int integer = 0;
  double number = 0;
};

// Throws Failure, which has the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace millrace::jinja
