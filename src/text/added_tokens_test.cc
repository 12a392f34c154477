// Added tokens of tokenizer.json with and without "normalized". The expected ids follow the definition of Hugging Face
// tokenizers (added_vocabulary.rs): the text is split at the tokens that are not normalized; what is left is normalized
// and split at the normalized forms of the others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/tokenizer_files.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;
constexpr EncodeOptions kOnlyText{.add_special = false};

constexpr const char* kBytes = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<": 2, ">": 3, "e": 4, "\u00cc": 5, "\u0123": 6, "c": 7}, "merges": []})";
constexpr const char* kPieces = R"("model": {"type": "BPE", "byte_fallback": false, "unk_token": "?",
  "vocab": {"?": 0, "▁": 1, "a": 2, "b": 3, "<": 4, "s": 5, ">": 6, "▁a": 7}, "merges": ["▁ a"]})";
constexpr const char* kLlama =
    R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
  {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},)";

std::string bytes(const char* normalizer) {
  return fmt::format(R"("normalizer": {{"type": "{}"}}, {})", normalizer, kBytes);
}

Ids encode_added(const std::string& pipeline, const std::string& added, const char* text) {
  auto spec = read_tokenizer_json(fmt::format(R"({{"added_tokens": [{}], {}}})", added, pipeline));
  if (!spec.ok()) return {-1};
  const auto tokenizer = Tokenizer::create(std::move(*spec));
  return tokenizer.ok() ? (*tokenizer)->encode(text, kOnlyText) : Ids{-2};
}

std::string token(TokenId id, const char* content, bool normalized, const char* more = "") {
  return fmt::format(R"({{"id": {}, "content": "{}", "normalized": {}{}}})", id, content, normalized, more);
}

TEST(AddedTokens, NormalizedOnesMatchEveryFormOfTheirText) {
  // U+00E9, and e with U+0301 (bytes CC 81).
  EXPECT_EQ(encode_added(bytes("NFC"), token(9, "\\u00e9", true),
                         "ae\xCC\x81"
                         "b"),
            (Ids{0, 9, 1}));
  EXPECT_EQ(encode_added(bytes("NFC"), token(9, "e\\u0301", true),
                         "a\xC3\xA9"
                         "b"),
            (Ids{0, 9, 1}));
  EXPECT_EQ(encode_added(bytes("NFD"), token(9, "\\u00e9", false),
                         "ae\xCC\x81"
                         "b"),
            (Ids{0, 4, 5, 6, 1}));
  EXPECT_EQ(encode_added(bytes("NFD"), token(9, "\\u00e9", false),
                         "a\xC3\xA9"
                         "b"),
            (Ids{0, 9, 1}));
  EXPECT_EQ(encode_added(bytes("Lowercase"), token(9, "New", true), "aNEWbnew"), (Ids{0, 9, 1, 9}));
  EXPECT_EQ(encode_added(bytes("Lowercase"), token(9, "New", false), "aNewBnewb"), (Ids{0, 9, 1, 4, 1}));
}

TEST(AddedTokens, TextBetweenThemIsNormalizedOnce) {
  const std::string swap = std::string(R"("normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}, {"type": "Replace", "pattern": {"String": "c"}, "content": "a"}]},)") +
                           kBytes;
  EXPECT_EQ(encode_added(swap, token(9, "<>", true), "c<>c"), (Ids{0, 9, 0}));
  EXPECT_EQ(encode_added(swap, token(9, "<>", false), "c<>c"), (Ids{0, 9, 0}));
}

TEST(AddedTokens, RawOnesAreFoundFirst) {
  const std::string both = token(9, "<b", true) + ", " + token(10, "b>", false);
  EXPECT_EQ(encode_added(bytes("NFC"), both, "<b>"), (Ids{2, 10}));
  EXPECT_EQ(encode_added(bytes("NFC"), both, "<b<b>"), (Ids{9, 2, 10}));
  // Without the field, a token that is not special is normalized.
  const std::string absent = R"({"id": 9, "content": "<b"}, {"id": 10, "content": "b>", "special": true})";
  EXPECT_EQ(encode_added(bytes("NFC"), absent, "<b>"), (Ids{2, 10}));
}

TEST(AddedTokens, APrependNormalizerIsPartOfTheirText) {
  const std::string pipeline = std::string(kLlama) + kPieces;
  const std::string normalized = token(9, "<s>", true, R"(, "special": true)");
  EXPECT_EQ(encode_added(pipeline, normalized, "<s>a"), (Ids{9, 2}));
  EXPECT_EQ(encode_added(pipeline, normalized, "a <s>a"), (Ids{7, 9, 2}));
  EXPECT_EQ(encode_added(pipeline, normalized, "a<s>a"), (Ids{7, 4, 5, 6, 2}));  // no space before it
  const std::string raw = token(9, "<s>", false, R"(, "special": true)");
  EXPECT_EQ(encode_added(pipeline, raw, "a<s>a"), (Ids{7, 9, 7}));
  EXPECT_EQ(encode_added(pipeline, raw, "a <s>a"), (Ids{7, 1, 9, 7}));
}

TEST(AddedTokens, AMetaspacePrefixIsAddedAfterMatching) {
  for (const auto& [scheme, after] : {std::pair{"always", TokenId{7}}, {"first", 2}}) {
    const std::string pipeline = fmt::format(
        R"("pre_tokenizer": {{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "{}"}}, {})", scheme, kPieces);
    EXPECT_EQ(encode_added(pipeline, token(9, "<s>", true), "a<s>a"), (Ids{7, 9, after})) << scheme;
    EXPECT_EQ(encode_added(pipeline, token(9, "<s>", true), "<s>a"), (Ids{9, after})) << scheme;
  }
}

TEST(AddedTokens, BertsNormalizerAppliesToThem) {
  const std::string pipeline = R"("normalizer": {"type": "BertNormalizer", "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1, "##b": 2, "ab": 3}})";
  EXPECT_EQ(encode_added(pipeline, token(9, "[N\\u00c9W]", true), "AB [NEW]a"), (Ids{3, 9, 1}));
  EXPECT_EQ(encode_added(pipeline, token(9, "[N\\u00c9W]", false), "AB [N\xC3\x89W]a"), (Ids{3, 9, 1}));
  EXPECT_EQ(encode_added(pipeline, token(9, "[NEW]", false), "AB new"), (Ids{3, 0}));
}

TEST(AddedTokens, ARefusedWordStartsNoOtherMatch) {
  const std::string two = token(9, "ab", false, R"(, "single_word": true)") + ", " + token(10, "b<", false);
  EXPECT_EQ(encode_added(bytes("NFC"), two, "cab<"), (Ids{7, 0, 1, 2}));
}

TEST(AddedTokens, FlagsOfTokenizerConfigReplaceThoseOfTokenizerJson) {
  auto spec =
      read_tokenizer_json(fmt::format(R"({{"added_tokens": [{}], {}}})", token(9, "New", true), bytes("Lowercase")));
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(
      apply_tokenizer_config(*spec, R"({"added_tokens_decoder": {"9": {"content": "New", "normalized": false}}})")
          .ok());
  const auto tokenizer = Tokenizer::create(std::move(*spec));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->encode("Newe", kOnlyText), (Ids{9, 4}));
  EXPECT_EQ((*tokenizer)->encode("NEWe", kOnlyText), (Ids{4, 4}));
}

}  // namespace
}  // namespace millrace
