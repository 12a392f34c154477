#include "text/tokenizers/special_tokens.h"

#include "base/work_limits.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kBytesPerLook = 4096;    // between calls of work_is_over()
constexpr size_t kMaxSpecialBytes = 512;  // bounds the work per byte of text; far above real vocabularies

bool word_char(std::string_view text, size_t pos) {
  return text[pos] == '_' || (char_at(text, pos).bits & (kLetter | kNumber | kMark)) != 0;
}

// Start of the character that ends at `end` (> 0).
size_t char_before(std::string_view text, size_t end) {
  size_t pos = end - 1;
  while (pos > 0 && end - pos < 4 && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) --pos;
  return pos;
}

}  // namespace

void SpecialTokens::add(Set& set, std::string_view text, TokenId id) {
  set.trie.insert(text, id);
  set.first[static_cast<uint8_t>(text[0])] = true;
}

SpecialTokens::SpecialTokens(const TokenizerSpec& spec) {
  std::vector<bool> normalized(spec.tokens.size());
  for (const AddedTokenFlags& flags : spec.added_flags) {
    if (flags.id >= 0 && static_cast<size_t>(flags.id) < normalized.size())
      normalized[static_cast<size_t>(flags.id)] = flags.normalized;
  }
  for (size_t i = 0; i < spec.types.size() && i < spec.tokens.size(); ++i) {
    const std::string& text = spec.tokens[i];
    if (text.empty() || text.size() > kMaxSpecialBytes) continue;
    const auto id = static_cast<TokenId>(i);
    const TokenType type = spec.types[i];
    if (type != TokenType::user_defined && type != TokenType::control && type != TokenType::unknown) continue;
    if (normalized[i]) {
      normalized_ids_.push_back(id);
      continue;
    }
    if (type == TokenType::user_defined) add(always_, text, id);
    add(with_control_, text, id);
  }
  for (const AddedTokenFlags& flags : spec.added_flags) {
    if (flags.id < 0 || static_cast<size_t>(flags.id) >= spec.tokens.size()) continue;
    flags_.resize(spec.tokens.size(), 0);
    flags_[static_cast<size_t>(flags.id)] = static_cast<uint8_t>(
        (flags.lstrip ? kLstrip : 0) | (flags.rstrip ? kRstrip : 0) | (flags.single_word ? kSingleWord : 0));
  }
}

void SpecialTokens::add_normalized(TokenId id, std::string_view text, TokenType type) {
  if (text.empty() || text.size() > kMaxSpecialBytes) return;
  if (type == TokenType::user_defined) add(normalized_always_, text, id);
  add(normalized_with_control_, text, id);
}

std::vector<SpecialTokens::Fragment> SpecialTokens::split(std::string_view text, const Set& set) const {
  std::vector<Fragment> fragments;
  if (set.trie.empty()) {
    if (!text.empty()) fragments.push_back({text, -1});
    return fragments;
  }
  size_t begin = 0, looked = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (pos - looked >= kBytesPerLook) {
      looked = pos;
      if (work_is_over()) break;
    }
    if (!set.first[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const ByteTrie::Match match = set.trie.longest_prefix(text.substr(pos));
    const size_t after = pos + match.length;
    const uint8_t flags = match.value < 0 || flags_.empty() ? 0 : flags_[static_cast<size_t>(match.value)];
    const bool inside_word = (flags & kSingleWord) && ((pos > 0 && word_char(text, char_before(text, pos))) ||
                                                       (after < text.size() && word_char(text, after)));
    if (match.value < 0 || inside_word) {
      pos = inside_word ? after : pos + 1;  // the text of a refused match starts no other one, as in Hugging Face
      continue;
    }
    size_t text_end = pos;
    if (flags & kLstrip) {
      while (text_end > begin) {
        const size_t before = char_before(text, text_end);
        if (before < begin || !(char_at(text, before).bits & kSpace)) break;
        text_end = before;
      }
    }
    if (text_end > begin) fragments.push_back({text.substr(begin, text_end - begin), -1});
    fragments.push_back({{}, match.value});
    pos = after;
    if (flags & kRstrip) {
      while (pos < text.size() && (char_at(text, pos).bits & kSpace)) pos += char_at(text, pos).length;
    }
    begin = pos;
  }
  if (begin < text.size()) fragments.push_back({text.substr(begin), -1});
  return fragments;
}

}  // namespace millrace
