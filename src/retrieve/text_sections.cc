#include "retrieve/text_sections.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxTitleBytes = 120, kMaxHeadingBytes = 300;
constexpr int kMaxLevel = 6;

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Returns the longest prefix of at most `most` bytes that ends with a whole character.
std::string_view prefix_of(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

// Returns the level of an ATX heading and its title; level 0: not a heading.
std::pair<int, std::string_view> heading_of(std::string_view line) {
  size_t indent = 0;
  while (indent < line.size() && indent < 4 && line[indent] == ' ') ++indent;
  if (indent == 4) return {0, {}};
  line.remove_prefix(indent);
  const size_t level = std::min(line.find_first_not_of('#'), line.size());
  if (level < 1 || level > kMaxLevel) return {0, {}};
  std::string_view title = line.substr(level);
  if (!title.empty() && title[0] != ' ' && title[0] != '\t' && title[0] != '\r' && title[0] != '\n') return {0, {}};
  title = without_blanks(title);
  const size_t closing = title.find_last_not_of('#');  // "## Title ##"
  if (closing != std::string_view::npos && closing + 1 < title.size() && title[closing] == ' ')
    title = without_blanks(title.substr(0, closing));
  return {static_cast<int>(level), title};
}

}  // namespace

void HeadingPath::enter(int level, std::string_view title) {
  while (!open_.empty() && open_.back().first >= level) open_.pop_back();
  open_.emplace_back(level, prefix_of(title, kMaxTitleBytes));
}

std::string HeadingPath::text() const {
  std::string out;
  for (const auto& [level, title] : open_) {
    if (title.empty()) continue;
    if (!out.empty()) out += " > ";
    out += title;
  }
  return std::string(prefix_of(out, kMaxHeadingBytes));
}

bool is_fence(std::string_view line) {
  line = without_blanks(line);
  return line.starts_with("```") || line.starts_with("~~~");
}

std::vector<TextSection> markdown_sections(std::string_view text) {
  std::vector<TextSection> out = {{}};
  HeadingPath path;
  bool fenced = false;
  for (size_t at = 0; at < text.size();) {
    const size_t found = text.find('\n', at);
    const size_t next = found == std::string_view::npos ? text.size() : found + 1;
    const std::string_view line = text.substr(at, next - at);
    if (is_fence(line)) fenced = !fenced;
    if (const auto [level, title] = heading_of(line); level > 0 && !fenced) {
      out.back().end = static_cast<int64_t>(at);
      path.enter(level, title);
      out.push_back({path.text(), static_cast<int64_t>(at), 0});
    }
    at = next;
  }
  out.back().end = std::ssize(text);
  return out;
}

}  // namespace millrace
