#include "picture/picture_text.h"

#include <cstdint>

namespace millrace {
namespace {

// The length of the valid UTF-8 sequence at the start of `text`; 0: none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates, and numbers above U+10FFFF.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) || (first == 0xf0 && byte(1) < 0x90) ||
      (first == 0xf4 && byte(1) > 0x8f))
    return 0;
  return length;
}

// C0 and C1 control characters, line and paragraph separators, and marks that change the direction of what follows.
bool is_control(std::string_view sequence) {
  if (sequence.size() == 1) return static_cast<uint8_t>(sequence[0]) < 0x20 || sequence[0] == 0x7f;
  if (sequence.size() == 2) return sequence[0] == '\xc2' && static_cast<uint8_t>(sequence[1]) < 0xa0;
  if (sequence.size() != 3 || sequence[0] != '\xe2') return false;
  const auto second = static_cast<uint8_t>(sequence[1]), third = static_cast<uint8_t>(sequence[2]);
  return (second == 0x80 && third >= 0xa8 && third <= 0xae) || (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

}  // namespace

std::string drawable_text(std::string_view text, size_t max_characters) {
  std::string out;
  for (size_t characters = 0; !text.empty(); ++characters) {
    if (characters == max_characters) return out + "\xe2\x80\xa6";
    const size_t length = sequence_length(text);
    if (length == 0)
      out += "\xef\xbf\xbd";
    else if (const auto sequence = text.substr(0, length); is_control(sequence))
      out += ' ';
    else
      out += sequence;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

}  // namespace millrace
