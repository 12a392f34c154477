#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/sentencepiece_normalizer.h"

namespace millrace {
namespace {

constexpr size_t kMaxTokens = 1 << 24;
constexpr size_t kMaxMerges = 1 << 26;
constexpr size_t kMaxTotalBytes = size_t{1} << 30;

Result<void> check_id(const char* name, const std::optional<TokenId>& id, size_t count) {
  if (id && (*id < 0 || static_cast<size_t>(*id) >= count)) {
    return Error::corrupt(
        fmt::format("tokenizer: {} token id is outside the vocabulary: {} of {} tokens", name, *id, count));
  }
  return {};
}

// Replacements run one after the other over the whole text, and a character map after them, so their growth multiplies.
// The limits make the time and the memory of normalizing a text proportional to its length.
Result<void> check_replacements(const TokenizerSpec& spec) {
  constexpr size_t kMaxReplacements = 64, kMaxPatternBytes = 256;
  constexpr double kMaxGrowth = 64, kMaxGrowthWithMap = 256;
  if (spec.replacements.size() > kMaxReplacements) {
    return Error::unsupported(fmt::format("tokenizer: too many Replace normalizers: {}, at most {}",
                                          spec.replacements.size(), kMaxReplacements));
  }
  double growth = 1;
  for (const auto& [from, to] : spec.replacements) {
    if (from.size() > kMaxPatternBytes) {
      return Error::unsupported(
          fmt::format("tokenizer: pattern of a Replace normalizer is too long: {} bytes, at most "
                      "{}",
                      from.size(), kMaxPatternBytes));
    }
    if (!from.empty()) growth *= std::max(1.0, static_cast<double>(to.size()) / static_cast<double>(from.size()));
    if (growth > kMaxGrowth) {
      return Error::unsupported(
          fmt::format("tokenizer: the Replace normalizers can make a text more than {} times as "
                      "long; remove those that grow it",
                      kMaxGrowth));
    }
  }
  const auto map = static_cast<double>(charsmap_growth(spec.precompiled_charsmap));
  if (growth * map > kMaxGrowthWithMap) {
    return Error::unsupported(
        fmt::format("tokenizer: the Replace normalizers and the character map can make a text more than {} times as "
                    "long; remove those that grow it",
                    kMaxGrowthWithMap));
  }
  return {};
}

Result<void> check(const TokenizerSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0) return Error::corrupt("tokenizer: the vocabulary is empty");
  if (count > kMaxTokens)
    return Error::corrupt(fmt::format("tokenizer: too many tokens: {}, at most {}", count, kMaxTokens));
  if (spec.merges.size() > kMaxMerges) {
    return Error::corrupt(fmt::format("tokenizer: too many merges: {}, at most {}", spec.merges.size(), kMaxMerges));
  }
  size_t bytes = 0;
  for (const std::string& token : spec.tokens) bytes += token.size();
  for (const std::string& merge : spec.merges) bytes += merge.size();
  if (bytes > kMaxTotalBytes) {
    return Error::corrupt(
        fmt::format("tokenizer: vocabulary is too large: {} bytes, at most {}", bytes, kMaxTotalBytes));
  }
  if (!spec.scores.empty() && spec.scores.size() != count) {
    return Error::corrupt(
        fmt::format("tokenizer: scores and tokens differ in number: {} and {}", spec.scores.size(), count));
  }
  if (!spec.types.empty() && spec.types.size() != count) {
    return Error::corrupt(
        fmt::format("tokenizer: token types and tokens differ in number: {} and {}", spec.types.size(), count));
  }
  for (size_t i = 0; i < spec.scores.size(); ++i) {
    if (std::isnan(spec.scores[i]))
      return Error::corrupt(fmt::format("tokenizer: score of token {} is not a number", i));
  }
  const std::pair<const char*, const std::optional<TokenId>*> ids[] = {{"bos", &spec.bos},
                                                                       {"eos", &spec.eos},
                                                                       {"unk", &spec.unk},
                                                                       {"pad", &spec.pad},
                                                                       {"sep", &spec.sep},
                                                                       {"cls", &spec.cls},
                                                                       {"mask", &spec.mask},
                                                                       {"eot", &spec.eot},
                                                                       {"eom", &spec.eom},
                                                                       {"fim_prefix", &spec.fim_prefix},
                                                                       {"fim_suffix", &spec.fim_suffix},
                                                                       {"fim_middle", &spec.fim_middle}};
  for (const auto& [name, id] : ids) MILLRACE_TRY_VOID(check_id(name, *id, count));
  for (TokenId id : spec.eog) MILLRACE_TRY_VOID(check_id("end-of-generation", id, count));
  return check_replacements(spec);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
  MILLRACE_TRY_VOID(check(spec));
  // Gemma 4 files say BPE, but spell tokens like SentencePiece.
  if (spec.kind == "bpe" && spec.pre == "gemma4") {
    spec.kind = "spm";
    spec.add_space_prefix = false;
  }
  if (spec.kind == "bpe") return create_bpe_tokenizer(std::move(spec));
  if (spec.kind == "spm") return create_spm_tokenizer(std::move(spec));
  if (spec.kind == "unigram") return create_unigram_tokenizer(std::move(spec));
  if (spec.kind == "wordpiece") return create_wordpiece_tokenizer(std::move(spec));
  if (spec.kind == "rwkv") return create_rwkv_tokenizer(std::move(spec));
  return Error::unsupported(
      fmt::format("unknown tokenizer kind '{}' (known: bpe, spm, unigram, wordpiece, rwkv)", spec.kind.substr(0, 80)));
}

bool Tokenizer::is_eog(TokenId id) const {
  const TokenizerSpec& s = spec();
  return (s.eos && *s.eos == id) || std::find(s.eog.begin(), s.eog.end(), id) != s.eog.end();
}

bool Tokenizer::is_control(TokenId id) const {
  const TokenizerSpec& s = spec();
  return id >= 0 && static_cast<size_t>(id) < s.types.size() && s.types[static_cast<size_t>(id)] == TokenType::control;
}

}  // namespace millrace
