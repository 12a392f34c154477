#include "terminal/display_width.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kNarrowestText = 20;  // columns; narrower text is not indented
constexpr utf8proc_int32_t kEmojiStyle = 0xFE0F, kFirstRegional = 0x1F1E6, kLastRegional = 0x1F1FF;

// Returns the code point at byte `at`, or -1 for an invalid byte. `bytes`: out, the length of its encoding, at least 1.
utf8proc_int32_t code_point(std::string_view text, size_t at, size_t* bytes) {
  utf8proc_int32_t value = -1;
  const auto left = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4));
  const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const utf8proc_ssize_t used = utf8proc_iterate(begin, left, &value);
  *bytes = used > 0 ? static_cast<size_t>(used) : 1;
  return used > 0 ? value : -1;
}

}  // namespace

TextCluster cluster_at(std::string_view text, size_t at) {
  TextCluster out;
  utf8proc_int32_t before = code_point(text, at, &out.bytes);
  if (before < 0) return {1, 1};
  out.columns = static_cast<size_t>(utf8proc_charwidth(before));
  const bool regional = before >= kFirstRegional && before <= kLastRegional;
  for (utf8proc_int32_t state = 0; at + out.bytes < text.size();) {
    size_t bytes = 0;
    const utf8proc_int32_t next = code_point(text, at + out.bytes, &bytes);
    if (next < 0 || utf8proc_grapheme_break_stateful(before, next, &state)) break;
    out.bytes += bytes;
    out.columns =
        next == kEmojiStyle || regional ? 2 : std::max(out.columns, static_cast<size_t>(utf8proc_charwidth(next)));
    before = next;
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const TextCluster one = cluster_at(text, at);
    columns += one.columns;
    at += one.bytes;
  }
  return columns;
}

std::vector<std::string> wrapped_lines(std::string_view text, size_t columns) {
  columns = std::max<size_t>(columns, 2);  // a wide character fits
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find_first_not_of(' ', at), text.size());
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    size_t blanks = begin - at;
    at = end;
    if (word.empty()) break;
    if (column > 0 && column + blanks + display_width(word) > columns) {
      lines.emplace_back();
      column = blanks = 0;
    }
    lines.back().append(blanks, ' ');
    column += blanks;
    for (size_t i = 0; i < word.size();) {
      const TextCluster one = cluster_at(word, i);
      if (column > 0 && column + one.columns > columns) {
        lines.emplace_back();
        column = 0;
      }
      lines.back() += word.substr(i, one.bytes);
      column += one.columns;
      i += one.bytes;
    }
  }
  return lines;
}

std::string hanging_text(std::string_view text, size_t indent, size_t columns) {
  if (columns < indent + kNarrowestText) return std::string(text);
  std::string out;
  for (const std::string& line : wrapped_lines(text, columns - indent))
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  return out;
}

size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace millrace
