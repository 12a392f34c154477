// Written tokenizers are read back unchanged.
#include "models/convert/tokenizer_writer.h"

#include <gtest/gtest.h>

#include "text/tokenizer_files.h"

namespace millrace {
namespace {

// <unk> <s> </s>, the 256 bytes, letters and a few words; SentencePiece's layout.
TokenizerSpec sentencepiece_spec(const std::string& kind) {
  TokenizerSpec spec;
  spec.kind = kind;
  auto add = [&](std::string text, TokenType type, float score) {
    spec.tokens.push_back(std::move(text));
    spec.types.push_back(type);
    spec.scores.push_back(score);
  };
  add("<unk>", TokenType::unknown, 0);
  add("<s>", TokenType::control, 0);
  add("</s>", TokenType::control, 0);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    add(name, TokenType::byte, 0);
  }
  float score = -1;
  for (const char* word :
       {"\xE2\x96\x81t", "he", "\xE2\x96\x81the", "in", "ing", "\xE2\x96\x81", "t", "h", "e", "i", "n", "g"})
    add(word, TokenType::normal, score--);
  add("<turn>", TokenType::user_defined, 0);
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.add_bos = true;
  return spec;
}

void expect_same(const TokenizerSpec& left, const TokenizerSpec& right) {
  auto a = Tokenizer::create(left), b = Tokenizer::create(right);
  ASSERT_TRUE(a.ok() && b.ok()) << (b.ok() ? "" : b.error().message);
  for (const char* text :
       {"the thing in the hen", " the  the", "\xC3\xA9t\xE2\x82\xAC", "ing", "the <turn>thing", ""}) {
    const auto ids = (*a)->encode(text);
    EXPECT_EQ((*b)->encode(text), ids) << text;
    EXPECT_EQ((*b)->decode(ids, true), (*a)->decode(ids, true)) << text;
  }
}

TEST(TokenizerWriter, SentencePieceModelReadsBack) {
  for (const char* kind : {"spm", "unigram"}) {
    TokenizerSpec spec = sentencepiece_spec(kind);
    spec.space_prefix = SpacePrefix::after_control;  // the only mode that SentencePiece has
    auto read = read_sentencepiece_model(write_sentencepiece_model(spec));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->tokens, spec.tokens);
    EXPECT_EQ(read->types, spec.types);
    EXPECT_EQ(read->scores, spec.scores);
    read->add_bos = true;  // set by tokenizer_config.json
    expect_same(spec, *read);
  }
}

TEST(TokenizerWriter, TokenizerJsonKeepsMergesOfSentencePiece) {
  TokenizerSpec spec = sentencepiece_spec("spm");
  spec.scores.clear();
  spec.merges = {"\xE2\x96\x81 t", "h e", "\xE2\x96\x81t he", "i n", "in g"};
  auto json = write_tokenizer_json(spec);
  ASSERT_TRUE(json.ok()) << json.error().message;
  auto read = read_tokenizer_json(*json);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->kind, "spm");
  EXPECT_EQ(read->tokens, spec.tokens);
  EXPECT_EQ(read->merges, spec.merges);
  EXPECT_TRUE(read->add_bos);
  expect_same(spec, *read);
}

TEST(TokenizerWriter, SplitNamesBecomeRegexes) {
  TokenizerSpec spec;
  spec.kind = "bpe";
  spec.pre = "llama-bpe";
  spec.ignore_merges = true;
  spec.tokens = {"a", "b", "ab", "1", "\xC4\xA0", "<|end|>"};
  spec.types.assign(5, TokenType::normal);
  spec.types.push_back(TokenType::control);
  spec.merges = {"a b"};
  auto json = write_tokenizer_json(spec);
  ASSERT_TRUE(json.ok()) << json.error().message;
  auto read = read_tokenizer_json(*json);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->ignore_merges);
  ASSERT_EQ(read->pre_patterns.size(), 1U);
  expect_same(spec, *read);
  spec.pre = "no-such-split";
  EXPECT_EQ(write_tokenizer_json(spec).error().kind, ErrorKind::unsupported);
}

TEST(TokenizerWriter, RefusesMoreTokensThanRows) {
  GgufWriter writer;
  std::vector<std::string> notes;
  auto written = write_gguf_tokenizer(sentencepiece_spec("spm"), 100, writer, notes);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().kind, ErrorKind::corrupt);
}

}  // namespace
}  // namespace millrace
