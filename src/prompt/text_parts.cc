#include "prompt/text_parts.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f\v";

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlanks) == std::string_view::npos; }

// Number of line breaks at the end of `text`, with any blanks between and after them.
int64_t breaks_at_end(std::string_view text) {
  const size_t last = text.find_last_not_of(kBlanks);
  return std::ranges::count(text.substr(last == std::string_view::npos ? 0 : last + 1), '\n');
}

// Splits the tokens of one range where `breaks` or more line breaks end a text.
void split_range(std::span<const std::string> texts, TokenRange range, int64_t breaks, std::vector<TokenRange>& out) {
  std::string part;
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    const std::string& text = texts[static_cast<size_t>(i)];
    const bool ended = !part.empty() && !is_blank(part) && breaks_at_end(part) >= breaks && !is_blank(text);
    if (part.empty() || ended) {
      out.push_back({i, 0});
      part.clear();
    }
    ++out.back().count;
    part += text;
  }
}

std::vector<TokenRange> free_ranges(std::span<const char> fixed) {
  std::vector<TokenRange> out;
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (fixed[i]) continue;
    if (i == 0 || fixed[i - 1]) out.push_back({static_cast<int64_t>(i), 0});
    ++out.back().count;
  }
  return out;
}

TokenRange last_tokens(TokenRange range, int64_t count) {
  count = std::min(count, range.count);
  return {range.first + range.count - count, count};
}

}  // namespace

Result<PartBreak> find_part_break(std::string_view name) {
  if (name == "automatic") return PartBreak::automatic;
  if (name == "line") return PartBreak::line;
  if (name == "paragraph") return PartBreak::paragraph;
  return Error::user(fmt::format("parts: expected automatic, line or paragraph, got '{}'", name));
}

std::vector<TokenRange> split_parts(std::span<const std::string> texts, std::span<const char> fixed, PartBreak by) {
  std::vector<TokenRange> out;
  for (const TokenRange& range : free_ranges(fixed)) {
    std::vector<TokenRange> parts;
    if (by != PartBreak::line) split_range(texts, range, 2, parts);
    if (by == PartBreak::line || (by == PartBreak::automatic && parts.size() < 3)) {
      parts.clear();
      split_range(texts, range, 1, parts);
    }
    out.insert(out.end(), parts.begin(), parts.end());
  }
  return out;
}

TokenRange find_question(const PromptView& prompt, PartBreak by, int64_t keep_last) {
  std::vector<char> others(prompt.tokens.size(), 1);  // 1: not the user's text
  for (size_t i = 0; i < others.size(); ++i) others[i] = prompt.source(i) != PromptSource::text;
  const std::vector<TokenRange> ranges = free_ranges(others);
  if (ranges.empty()) return {};
  const TokenRange last = ranges.back();
  if (keep_last > 0) return last_tokens(last, keep_last);
  for (int64_t i = 0; i < last.first; ++i) others[static_cast<size_t>(i)] = 1;
  std::vector<TokenRange> parts = split_parts(prompt.texts, others, by);
  if (parts.size() == 1) {
    for (int64_t i = 0; i < std::ssize(prompt.tokens); ++i)
      if (!prompt.fixed[static_cast<size_t>(i)] && (i < last.first || i >= last.first + last.count)) return last;
    parts = split_units(prompt.texts, others, TextUnit::sentence);
  }
  return parts.size() < 2 ? TokenRange{} : parts.back();
}

}  // namespace millrace
