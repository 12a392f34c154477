// Python's operations on text, with positions in code points, for text stored as UTF-8. A byte that is not part of a
// valid sequence counts as one code point and is preserved, so that no input is rejected and slicing never loses bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::jinja {

constexpr char32_t kInvalidByte = 0xDC00;  // decode() returns kInvalidByte + byte for an invalid byte

// Decodes the code point at `pos` (pos < text.size()) and moves `pos` past it.
char32_t decode(std::string_view text, size_t& pos);
void encode(char32_t code_point, std::string& out);

size_t count_code_points(std::string_view text);
std::vector<std::string_view> split_code_points(std::string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_alpha(char32_t c);
bool is_digit(char32_t c);  // decimal digits
bool is_word(char32_t c);   // \w of Python's re

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);        // str.title
std::string title_words(std::string_view text);  // Jinja's filter title: words begin after space, - ( [ { <

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view chars);
std::string_view strip_right(std::string_view text, std::string_view chars);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);  // str.splitlines

}  // namespace millrace::jinja
