#include "learn/bpe_trainer.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

std::vector<std::string> toy_corpus() {
  std::vector<std::string> texts;
  for (int i = 0; i < 20; ++i) {
    texts.push_back("the cat sat on the mat. the cat ran!\nThe hat, the bat and the rat sat.");
    texts.push_back("\"Look at the cat,\" said Tom. It's 42 hats.");
  }
  return texts;
}

TokenizerSpec toy_spec() { return std::move(train_bpe(toy_corpus(), 259 + 94 + 1 + 20)).value(); }

TEST(BpeTrainer, VocabularyHasTheSpmLayout) {
  const TokenizerSpec spec = toy_spec();
  ASSERT_EQ(spec.tokens.size(), 259u + 94u + 1u + 20u);
  EXPECT_EQ(spec.tokens[0], "<unk>");
  EXPECT_EQ(spec.tokens[1], "<s>");
  EXPECT_EQ(spec.tokens[2], "</s>");
  EXPECT_EQ(spec.tokens[3], "<0x00>");
  EXPECT_EQ(spec.tokens[258], "<0xFF>");
  EXPECT_EQ(spec.types[0], TokenType::unknown);
  EXPECT_EQ(spec.types[2], TokenType::control);
  EXPECT_EQ(spec.types[258], TokenType::byte);
  EXPECT_EQ(spec.types[259], TokenType::normal);
  for (size_t id = 260; id < spec.tokens.size(); ++id) EXPECT_LT(spec.scores[id], spec.scores[id - 1]);
  EXPECT_EQ(spec.scores.size(), spec.tokens.size());
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  // "at" occurs 9 times in each pair of texts, more often than any other pair.
  EXPECT_EQ(toy_spec().tokens[kFirstPieceId], "at");
}

TEST(BpeTrainer, NoPieceCrossesAWordStartOrMixesLettersAndSigns) {
  const std::string space = "\u2581";
  for (size_t id = kFirstPieceId; id < toy_spec().tokens.size(); ++id) {
    const std::string piece = toy_spec().tokens[id];
    EXPECT_EQ(piece.find(space, 1), std::string::npos) << piece;
    EXPECT_EQ(piece.find('\n'), std::string::npos);
    bool letter = false, sign = false;
    for (unsigned char c : piece) {
      letter |= std::isalpha(c) != 0;
      sign |= c < 0x80 && std::isalnum(c) == 0;
    }
    EXPECT_FALSE(letter && sign) << piece;
  }
}

TEST(BpeTrainer, RefusesAVocabularyThatTheTextCannotFill) {
  auto large = train_bpe({"a b"}, 4096);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().kind, ErrorKind::user);
  EXPECT_FALSE(train_bpe(toy_corpus(), 300).ok());
}

TEST(BpeTrainer, VocabularyIsRebuiltFromItsPieces) {
  const TokenizerSpec spec = toy_spec();
  const TokenizerSpec again = vocabulary_of({spec.tokens.begin() + kFirstPieceId, spec.tokens.end()});
  EXPECT_EQ(again.tokens, spec.tokens);
  EXPECT_EQ(again.scores, spec.scores);
  EXPECT_EQ(again.types, spec.types);
}

TEST(BpeEncoder, CachedWordsEqualTheWholeTextAlgorithm) {
  const TokenizerSpec spec = toy_spec();
  BpeEncoder encoder(spec);
  std::mt19937 random(7);
  const std::string letters = "the cat sat\n.\"! T42,'mornhé\u201c";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += letters[random() % letters.size()];  // cut UTF-8 too
    EXPECT_EQ(encoder.encode(text), encoder.encode_whole(text)) << text;
  }
}

TEST(BpeEncoder, EqualsTheTokenizerOfTheEngine) {
  const TokenizerSpec spec = toy_spec();
  auto tokenizer = Tokenizer::create(spec);
  ASSERT_TRUE(tokenizer.ok());
  BpeEncoder encoder(spec);
  for (const std::string text : {"the cat", "  two  spaces", "It's \xc3\xa9t\xc3\xa9 1942.\n\nThe hat!", ""})
    EXPECT_EQ(encoder.encode(text), (*tokenizer)->encode(text, {.add_special = false, .parse_special = false})) << text;
}

TEST(BpeEncoder, DecodesWhatItEncoded) {
  BpeEncoder encoder(toy_spec());
  for (const std::string text : {"the cat sat.\nThe mat!", "caf\xc3\xa9 \xe2\x82\xac 7", "x"})
    EXPECT_EQ(encoder.decode(encoder.encode(text)), text);
  EXPECT_EQ(encoder.decode({-1, 1 << 20}), "");
}

}  // namespace
}  // namespace millrace
