// The readers on small files built here: supported contents, and named errors for invalid input.
#include "text/tokenizer_files.h"

#include <gtest/gtest.h>

#include <random>

#include "text/unicode.h"

namespace millrace {
namespace {

std::unique_ptr<Tokenizer> make(Result<TokenizerSpec> spec) {
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::create(std::move(spec).value());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
using Ids = std::vector<TokenId>;

// A varint / length-delimited protobuf field.
std::string field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) + bytes;
}
std::string field(int number, int value) {
  std::string tag;
  for (int v = number << 3;; v >>= 7) {
    tag += static_cast<char>((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
    if (v <= 0x7F) break;
  }
  return tag + static_cast<char>(value);
}
std::string piece(const std::string& text, float score, int type) {
  std::string bytes = field(1, text) + '\x15';
  for (int i = 0; i < 4; ++i) bytes += reinterpret_cast<const char*>(&score)[i];
  return field(1, bytes + field(3, type));
}
std::string tiny_model(int model_type) {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
         piece(
             "\xE2\x96\x81"
             "a",
             -1, 1) +
         piece("b", -2, 1) +
         piece(
             "\xE2\x96\x81"
             "ab",
             -1.5f, 1) +
         piece("a", -4, 1) + piece("\xE2\x96\x81", -3, 1) + field(2, field(3, model_type));
}

TEST(SentencePieceReader, BpeAndUnigram) {
  for (int type : {1, 2}) {
    const auto tokenizer = make(read_sentencepiece_model(tiny_model(type)));
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(tokenizer->spec().kind, type == 1 ? "unigram" : "spm");
    EXPECT_EQ(tokenizer->spec().bos, 1);
    EXPECT_EQ(tokenizer->encode("ab  a", kPlain), (Ids{5, 3}));
    EXPECT_EQ(tokenizer->encode("xyz", kPlain), (Ids{7, 0}));
    EXPECT_EQ(tokenizer->decode({5, 3}, false), "ab a");
  }
}

TEST(SentencePieceReader, BadBytes) {
  EXPECT_FALSE(read_sentencepiece_model("").ok());
  EXPECT_FALSE(read_sentencepiece_model(tiny_model(3)).ok());               // word model
  EXPECT_FALSE(read_sentencepiece_model("\x0A\xFF\xFF\xFF\xFF\x7F").ok());  // a piece of 32 GiB
  const std::string good = tiny_model(2);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    const auto spec = read_sentencepiece_model(good.substr(0, cut));
    if (spec.ok())
      EXPECT_FALSE(spec->tokens.empty());
    else
      EXPECT_EQ(spec.error().kind, ErrorKind::corrupt);
  }
}

const char* const kTinyJson = R"({
  "added_tokens": [{"id": 7, "content": "<|end|>", "special": true, "rstrip": true}, {"id": 8, "content": "<tool>", "special": false}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": false},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}]},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "1": 3, "\u0120": 4, "\u0120a": 5, "\u00c3\u00a9": 6},
            "merges": ["a b", ["\u0120", "a"], "\u00c3 \u00a9"]}})";

TEST(TokenizerJsonReader, ByteLevelBpe) {
  const auto tokenizer = make(read_tokenizer_json(kTinyJson));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("ab a11"), (Ids{7, 2, 5, 3, 3}));
  EXPECT_EQ(tokenizer->encode("e\xCC\x81", kPlain).size(), 0u);  // composed by NFC, but its bytes are not tokens
  EXPECT_EQ(tokenizer->encode("a<|end|>  b<tool>", {.add_special = false}), (Ids{0, 7, 1, 8}));
  EXPECT_TRUE(tokenizer->is_eog(7));
}

TEST(TokenizerJsonReader, UnsupportedComponentsAreNamed) {
  const auto message = [](std::string from, std::string to) {
    std::string json = kTinyJson;
    json.replace(json.find(from), from.size(), to);
    const auto spec = read_tokenizer_json(json);
    return spec.ok() ? std::string() : spec.error().message;
  };
  EXPECT_NE(message("\"BPE\"", "\"Quantum\"").find("Quantum"), std::string::npos);
  EXPECT_NE(message("\"NFC\"", "\"Rot13\"").find("Rot13"), std::string::npos);
  EXPECT_NE(message("Isolated", "MergedWithNext").find("MergedWithNext"), std::string::npos);
  EXPECT_NE(message("\"id\": 7", "\"id\": 2147483647").find("2147483647"), std::string::npos);
  EXPECT_NE(message("\"b\": 1", "\"b\": 0").find("same id"), std::string::npos);
  EXPECT_NE(message("\"b\": 1", "\"b\": -1"), "");
  EXPECT_NE(message("\"a b\"", "7").find("merge"), std::string::npos);
}

TEST(TokenizerJsonReader, MetaspaceUnigramAndWordPiece) {
  const auto unigram = make(
      read_tokenizer_json(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["b", -2.0], ["▁", -3.0]]}})"));
  ASSERT_TRUE(unigram);
  EXPECT_EQ(unigram->encode("ab b", kPlain), (Ids{1, 2, 3, 2}));
  EXPECT_EQ(unigram->decode({1, 2, 3, 2}, false), "ab b");
  const auto wordpiece = make(read_tokenizer_json(R"({"normalizer": {"type": "BertNormalizer", "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "cleanup": true},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "added_tokens": [{"id": 0, "content": "[UNK]", "special": true}, {"id": 1, "content": "[CLS]", "special": true}, {"id": 2, "content": "[SEP]", "special": true}],
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "play": 3, "##ing": 4, ".": 5}}})"));
  ASSERT_TRUE(wordpiece);
  EXPECT_EQ(wordpiece->encode("Playing. zz"), (Ids{1, 3, 4, 5, 0, 2}));
  EXPECT_EQ(wordpiece->decode({1, 3, 4, 5, 2}, true), "playing.");
}

TEST(TokenizerJsonReader, NeverCrashesOnMutations) {
  std::mt19937 rng(1);
  const std::string seed = kTinyJson;
  EXPECT_FALSE(read_tokenizer_json("").ok());
  EXPECT_FALSE(read_tokenizer_json("[]").ok());
  EXPECT_FALSE(read_tokenizer_json(std::string(100000, '[')).ok());
  for (int round = 0; round < 3000; ++round) {
    std::string json = seed;
    for (int edits = 0; edits < 3; ++edits) json[rng() % json.size()] = "\"{}[]:,0-9aN\\u"[rng() % 14];
    auto spec = read_tokenizer_json(json);
    if (!spec.ok()) continue;
    if (const auto tokenizer = Tokenizer::create(std::move(spec).value()); tokenizer.ok())
      (void)(*tokenizer)->encode("ab 1 <tool>");
  }
}

TEST(VocabMergesReader, VersionLineAndBlankLines) {
  const auto tokenizer =
      make(read_vocab_merges(R"({"a":0,"b":1,"ab":2})", "#version: 0.2\r\na b\r\n\r\n", R"({"<x>":3})", "gpt-2"));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("abb<x>"), (Ids{2, 1, 3}));
  EXPECT_FALSE(read_vocab_merges("{", "", "", "gpt-2").ok());
  EXPECT_FALSE(read_vocab_merges(R"({"a":"x"})", "", "", "gpt-2").ok());
  EXPECT_FALSE(read_vocab_merges(R"({"a":4000000000})", "", "", "gpt-2").ok());
  EXPECT_FALSE(read_vocab_merges(R"({"a":0})", "", "", "nonesuch").ok());
}

TEST(TiktokenReader, RanksAreMerges) {
  // a b c ab bc abc: "abc" is one token; "bcab" merges ab (rank 3) before bc (rank 4).
  const std::string ranks = "YQ== 0\nYg== 1\nYw== 2\nYWI= 3\nYmM= 4\nYWJj 5\n";
  EXPECT_EQ(sniff_tokenizer_file(ranks), "tiktoken");
  auto spec = read_tiktoken(ranks, "cl100k");
  const auto tokenizer = make(spec);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{5}));
  EXPECT_EQ(tokenizer->encode("bcab"), (Ids{4, 3}));
  EXPECT_EQ(tokenizer->encode("abab"), (Ids{3, 3}));
  EXPECT_EQ(derive_merges(*spec), (std::vector<std::string>{"a b", "b c", "a bc", "ab c"}));
  for (const char* bad :
       {"", "YQ==", "YQ== x", "Y? 0", "YQ== -1", "YQ== 99999999999999999999", "YQ== 0\nYg== 0", "YQ== 4000000"}) {
    EXPECT_FALSE(read_tiktoken(bad, "cl100k").ok()) << bad;
  }
}

std::string byte_name(int byte) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">";
}

TEST(Llama2cReader, TruncatedFilesAndBadLengths) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 260; ++i) {
    const std::string text = i == 0    ? "<unk>"
                             : i == 1  ? "\n<s>\n"
                             : i == 2  ? "\n</s>\n"
                             : i < 259 ? byte_name(i - 3)
                                       : "a";
    bytes += std::string(4, '\0') + static_cast<char>(text.size()) + std::string(3, '\0') + text;
  }
  const auto tokenizer = make(read_llama2c_tokenizer(bytes, 260));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("a\n"), (Ids{1, 3 + ' ', 259, 3 + '\n'}));
  EXPECT_EQ(tokenizer->decode({1, 3 + ' ', 259}, true), "a");
  EXPECT_TRUE(read_llama2c_tokenizer(bytes, 0).ok());
  EXPECT_FALSE(read_llama2c_tokenizer(bytes, 261).ok());
  EXPECT_FALSE(read_llama2c_tokenizer(bytes, -1).ok());
  EXPECT_FALSE(read_llama2c_tokenizer(bytes, INT32_MAX).ok());
  bytes[8] = '\x7F';
  bytes[11] = '\x7F';
  EXPECT_FALSE(read_llama2c_tokenizer(bytes, 260).ok());
}

TEST(RwkvReader, Literals) {
  const auto tokenizer = make(read_rwkv_vocab("1 'a' 1\n2 b'\\xff' 1\n3 '\\u4e2d' 3\n4 \"a'\" 2\n5 '\\n ' 2\n"));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("aa'\xFF\xE4\xB8\xAD\n "), (Ids{1, 4, 2, 3, 5}));
  for (const char* bad : {"1 'a' 2", "x 'a' 1", "1 a 1", "1 '\\q' 1", "1 '' 0", "-1 'a' 1"})
    EXPECT_FALSE(read_rwkv_vocab(bad).ok()) << bad;
}

TEST(TokenizerConfig, NamedTokensFlagsAndEos) {
  auto spec = read_vocab_merges(R"({"a":0,"b":1})", "", "", "gpt-2");
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(
      apply_tokenizer_config(
          *spec,
          R"({"added_tokens_decoder": {"2": {"content": "<s>", "special": true}, "3": {"content": "<|im_end|>", "special": true}},
    "bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}, "add_bos_token": true, "pad_token": null})")
          .ok());
  EXPECT_EQ(spec->bos, 2);
  EXPECT_EQ(spec->eos, 3);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_FALSE(spec->pad);
  ASSERT_TRUE(apply_tokenizer_config(*spec, R"({"eos_token_id": [3, 1, 77, -2, "x"]})").ok());
  EXPECT_EQ(spec->eog, (Ids{3, 1}));
  const auto tokenizer = make(std::move(spec));
  EXPECT_EQ(tokenizer->encode("a<|im_end|>"), (Ids{2, 0, 3}));
  TokenizerSpec other;
  other.tokens = {"a"};
  EXPECT_FALSE(apply_tokenizer_config(other, "not json").ok());
  EXPECT_FALSE(apply_tokenizer_config(other, R"({"added_tokens_decoder": {"9999999": {"content": "x"}}})").ok());
  EXPECT_FALSE(apply_tokenizer_config(other, R"({"added_tokens_decoder": {"1e3": {"content": "x"}}})").ok());
}

}  // namespace
}  // namespace millrace
