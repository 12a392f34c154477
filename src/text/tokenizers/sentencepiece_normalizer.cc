#include "text/tokenizers/sentencepiece_normalizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"
#include "text/work_count.h"

namespace millrace {
namespace {

constexpr size_t kMaxKeyBytes = 256;    // bounds the work per byte of text; published maps have keys of 18 bytes
constexpr size_t kMaxOutputBytes = 64;  // for one key, bounds the growth of a text; published maps have 33

// One unit of the double array, as Darts-clone stores it.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

uint32_t little_endian(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

}  // namespace

size_t charsmap_growth(std::span<const uint8_t> map) {
  if (map.size() < 4) return 0;
  size_t longest = 0, bytes = 0;
  for (const uint8_t byte : map.subspan(4 + std::min<size_t>(little_endian(map.data()), map.size() - 4))) {
    bytes = byte == 0 ? 0 : bytes + 1;
    longest = std::max(longest, bytes);
  }
  return longest;
}

Result<SentencePieceNormalizer> SentencePieceNormalizer::create(const TokenizerSpec& spec) {
  SentencePieceNormalizer normalizer;
  normalizer.remove_extra_ = spec.remove_extra_whitespaces;
  normalizer.suffix_ = spec.whitespace_suffix;
  const std::vector<uint8_t>& map = spec.precompiled_charsmap;
  if (map.empty()) return normalizer;
  const size_t trie_bytes = map.size() < 4 ? 0 : little_endian(map.data());
  if (map.size() < 4 || trie_bytes > map.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return Error::corrupt(fmt::format("tokenizer: character map does not fit its size: trie of {} bytes in {} bytes",
                                      trie_bytes, map.size()));
  }
  normalizer.units_.resize(trie_bytes / 4);
  for (size_t i = 0; i < normalizer.units_.size(); ++i) normalizer.units_[i] = little_endian(map.data() + 4 + 4 * i);
  normalizer.strings_.assign(map.begin() + 4 + static_cast<std::ptrdiff_t>(trie_bytes), map.end());
  if (const size_t longest = charsmap_growth(map); longest > kMaxOutputBytes) {
    return Error::unsupported(
        fmt::format("tokenizer: character map writes {} bytes for a character, at most {}", longest, kMaxOutputBytes));
  }
  return normalizer;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::next(std::string_view text) const {
  size_t best_length = 0;
  uint32_t best_value = 0;
  if (!units_.empty()) {
    size_t node = offset_of(units_[0]);
    size_t i = 0;
    for (; i < std::min(text.size(), kMaxKeyBytes); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      node ^= byte;
      if (node >= units_.size() || label_of(units_[node]) != byte) break;
      const uint32_t unit = units_[node];
      node ^= offset_of(unit);
      if (!has_leaf(unit)) continue;
      if (node >= units_.size()) break;
      best_length = i + 1;
      best_value = value_of(units_[node]);
    }
    text_work += static_cast<int64_t>(i) + 1;
  }
  if (best_length > 0 && best_value < strings_.size()) {
    const std::string_view rest = std::string_view(strings_).substr(best_value);
    return {rest.substr(0, rest.find('\0')), best_length};
  }
  const size_t length = decode_utf8(text, 0).length;
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::normalize(std::string_view text, bool space_prefix, std::string& out) const {
  const size_t start = out.size();
  if (remove_extra_) {
    while (!text.empty()) {
      const Step step = next(text);
      if (step.output != " ") break;
      text.remove_prefix(step.consumed);
    }
    if (text.empty()) return;
  }
  if (space_prefix && !suffix_) out += ' ';
  bool after_space = remove_extra_;
  while (!text.empty()) {
    Step step = next(text);
    text.remove_prefix(step.consumed);
    if (after_space) {
      while (!step.output.empty() && step.output.front() == ' ') step.output.remove_prefix(1);
    }
    if (!step.output.empty()) {
      out.append(step.output);
      after_space = remove_extra_ && step.output.back() == ' ';
    }
  }
  if (remove_extra_) {
    while (out.size() > start && out.back() == ' ') out.pop_back();
  }
  if (space_prefix && suffix_) out += ' ';
  text_work += static_cast<int64_t>(out.size() - start);
}

}  // namespace millrace
