// Tokenizers look at the limits of their thread while they encode, whatever their kind and the shape of the text.
#include <gtest/gtest.h>

#include "base/work_limits.h"
#include "text/tokenizer.h"
#include "text/tokenizers/merge_table.h"
#include "text/tokenizers/sentencepiece_normalizer.h"

namespace millrace {
namespace {

std::string many_times(const char* text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::unique_ptr<Tokenizer> limited_tokenizer(const std::string& kind) {
  TokenizerSpec spec;
  spec.kind = kind;
  spec.tokens = {"<unk>", "<end>", "a", "b", kind == "bpe" ? "\xC4\xA0" : " ", "ab"};
  spec.types.assign(spec.tokens.size(), TokenType::normal);
  spec.types[0] = TokenType::unknown;
  spec.types[1] = TokenType::control;
  if (kind == "unigram" || kind == "spm") spec.scores = {0, 0, -1, -2, -3, -4};
  if (kind == "bpe") spec.merges = {"a b"};
  spec.unk = 0;
  spec.byte_fallback = spec.fuse_unk = false;
  auto made = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(made.ok()) << kind << ": " << made.error().message;
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(TokenizerLimits, EveryKindStopsOnEveryShapeOfText) {
  const std::pair<const char*, std::string> kTexts[] = {{"words", many_times("ab ", 40'000)},
                                                        {"one word", many_times("ab", 60'000)},
                                                        {"marks", many_times("<end>", 40'000)}};
  for (const char* kind : {"bpe", "spm", "unigram", "wordpiece", "rwkv"}) {
    const auto tokenizer = limited_tokenizer(kind);
    ASSERT_TRUE(tokenizer);
    for (const auto& [shape, text] : kTexts) {
      const std::string where = std::string(kind) + ", " + shape;
      const size_t all = tokenizer->encode(text).size();
      const std::atomic<bool> left{true};
      const WorkScope scope({.cancelled = &left, .until = {}});
      if (std::string(shape) == "one word" && std::string(kind) == "wordpiece") continue;  // is one unk
      EXPECT_LT(tokenizer->encode(text).size(), all / 2) << where;
    }
    EXPECT_EQ(tokenizer->encode("ab ab").size(), limited_tokenizer(kind)->encode("ab ab").size()) << kind;
  }
}

TEST(TokenizerLimits, MergingOneLongWordStops) {
  MergeTable table;
  table.add(1, 1, 0, 2);
  table.add(2, 2, 1, 3);
  const auto merged = [&] {
    std::vector<MergePiece> pieces;
    for (uint32_t i = 0; i < 100'000; ++i) pieces.push_back({1, i + 1});
    MergeScratch scratch;
    table.merge(pieces, scratch);
    EXPECT_EQ(pieces.back().end, 100'000u) << "what is merged so far covers the word";
    return pieces.size();
  };
  EXPECT_EQ(merged(), 25'000u);
  const std::atomic<bool> left{true};
  const WorkScope scope({.cancelled = &left, .until = {}});
  EXPECT_GT(merged(), 90'000u);
}

// The units of this map form a circle: every "a" leads to the same unit again, so that a key has no end.
TEST(TokenizerLimits, ACircleInACharacterMapIsLeft) {
  TokenizerSpec spec;
  const auto put = [&](uint32_t unit) {
    for (int shift = 0; shift < 32; shift += 8)
      spec.precompiled_charsmap.push_back(static_cast<uint8_t>(unit >> shift));
  };
  put(256 * 4);
  for (uint32_t i = 0; i < 256; ++i) put(i == 'a' ? uint32_t{'a'} << 10 | 'a' : 0);
  auto normalizer = SentencePieceNormalizer::create(spec);
  ASSERT_TRUE(normalizer.ok()) << normalizer.error().message;
  const std::string text = many_times("a", 200'000);  // takes minutes if each "a" reads the whole rest
  std::string out;
  normalizer->normalize(text, false, out);
  EXPECT_EQ(out, text);
}

}  // namespace
}  // namespace millrace
