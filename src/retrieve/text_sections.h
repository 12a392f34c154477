// TextSection: a part of a document under one heading. markdown_sections() finds them by ATX headings ("## Title"),
// except within fenced blocks. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct TextSection {
  std::string heading;         // this heading below those above it, "Install > From source"; "": before the first
  int64_t begin = 0, end = 0;  // bytes of the text, with the heading's line
};

// The headings above a place, level by level.
class HeadingPath {
 public:
  // `level`: 1 to 6.
  void enter(int level, std::string_view title);
  std::string text() const;  // "Install > From source", at most 300 bytes

 private:
  std::vector<std::pair<int, std::string>> open_;
};

// Returns true for the line that begins or ends a fenced block.
bool is_fence(std::string_view line);

std::vector<TextSection> markdown_sections(std::string_view text);

}  // namespace millrace
