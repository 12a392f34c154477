#include "loader/file_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "text/unicode.h"

namespace millrace {
namespace {

// Length of the well-formed character at the start of `text`, 0 if there is none.
size_t sequence_length(std::string_view text) {
  CodePoint first = decode_utf8(text, 0);
  return first.valid ? first.length : 0;
}

}  // namespace

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
