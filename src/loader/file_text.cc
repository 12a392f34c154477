#include "loader/file_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace millrace {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF).
size_t sequence_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  uint8_t second = byte(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t length = sequence_length(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      length = 1;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string quoted_name(std::string_view text) {
  constexpr size_t kShown = 120;
  std::string out = "'";
  size_t shown = 0;
  while (!text.empty() && shown < kShown) {
    size_t length = sequence_length(text);
    auto first = static_cast<uint8_t>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7f) {
      out += fmt::format("\\x{:02x}", first);
      length = 1;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
    shown += length;
  }
  out += text.empty() ? "'" : "...'";
  return out;
}

}  // namespace millrace
