#include "prompt/text_units.h"

#include <fmt/format.h>

namespace millrace {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n\f\v";
constexpr std::string_view kClosing = "\"')]}*";  // may follow the mark that ends a sentence

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool begins_with_space(std::string_view text) { return !text.empty() && is_one_of(text.front(), kWhiteSpace); }
bool ends_with_space(std::string_view text) { return !text.empty() && is_one_of(text.back(), kWhiteSpace); }

// Whether `text`, the sentence so far, is complete before `next`.
bool ends_sentence(std::string_view text, std::string_view next) {
  const size_t last = text.find_last_not_of(kWhiteSpace);
  if (text.find('\n', last == std::string_view::npos ? 0 : last) != std::string_view::npos) return true;
  if (last == std::string_view::npos) return false;
  text = text.substr(0, last + 1);
  for (const std::string_view mark : {"\u3002", "\uff01", "\uff1f"})  // ideographic full stop, full-width ! and ?
    if (text.ends_with(mark)) return true;
  if (!begins_with_space(next)) return false;
  const size_t mark = text.find_last_not_of(kClosing);
  return mark != std::string_view::npos && is_one_of(text[mark], ".!?");
}

}  // namespace

Result<TextUnit> find_text_unit(std::string_view name) {
  if (name == "token") return TextUnit::token;
  if (name == "word") return TextUnit::word;
  if (name == "sentence") return TextUnit::sentence;
  return Error::user(fmt::format("unit: expected token, word or sentence, got '{}'", name));
}

std::vector<TokenRange> split_units(std::span<const std::string> texts, std::span<const char> fixed, TextUnit unit) {
  std::vector<TokenRange> out;
  std::string sentence;  // text of the open unit
  bool open = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (fixed[i]) {
      open = false;
      continue;
    }
    bool begins = !open || unit == TextUnit::token;
    if (!begins && unit == TextUnit::word) begins = begins_with_space(texts[i]) || ends_with_space(texts[i - 1]);
    if (!begins && unit == TextUnit::sentence) begins = ends_sentence(sentence, texts[i]);
    if (begins) {
      out.push_back({static_cast<int64_t>(i), 0});
      sentence.clear();
    }
    ++out.back().count;
    if (unit == TextUnit::sentence) sentence += texts[i];
    open = true;
  }
  return out;
}

std::vector<char> with_last_fixed(std::span<const char> fixed, int64_t count) {
  std::vector<char> out(fixed.begin(), fixed.end());
  for (size_t i = out.size(); i-- > 0 && count > 0;) {
    if (out[i]) continue;
    out[i] = 1;
    --count;
  }
  return out;
}

}  // namespace millrace
