// Published vocabularies against published ids, encoding and decoding. Needs the shared test data.
#include <gtest/gtest.h>

#include <charconv>
#include <sstream>

#include "base/ordered_json.h"
#include "shared_data.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/vocab_gguf_test.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

std::string data(const std::string& name) {
  return testing::read_maybe_xz(testing::shared_data() / "tokenizers" / name);
}

std::unique_ptr<Tokenizer> make_tokenizer(Result<TokenizerSpec> spec) {
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::create(std::move(spec).value());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

struct VectorCase {
  std::string text;
  Ids ids;
};

// .inp: each text is followed by a separator line; .out: one line of ids per text.
std::vector<VectorCase> read_cases(const std::string& stem) {
  std::vector<VectorCase> cases;
  const std::string input = data(stem + ".inp");
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::istringstream out(data(stem + ".out"));
  size_t begin = 0;
  for (size_t end = input.find(separator); end != std::string::npos; end = input.find(separator, begin)) {
    VectorCase c{input.substr(begin, end - begin), {}};
    std::string line;
    std::getline(out, line);
    std::istringstream ids(line);
    for (TokenId id; ids >> id;) c.ids.push_back(id);
    cases.push_back(std::move(c));
    begin = end + separator.size();
  }
  return cases;
}

constexpr EncodeOptions kPlainVectors{.add_special = false, .parse_special = false};

void expect_cases(const Tokenizer& tokenizer, const std::vector<VectorCase>& cases, bool lossless = true) {
  ASSERT_GT(cases.size(), 40u);
  for (const VectorCase& c : cases) {
    EXPECT_EQ(tokenizer.encode(c.text, kPlainVectors), c.ids) << "text: " << c.text;
    EXPECT_EQ(tokenizer.encode(c.text, kPlainVectors), c.ids) << "again, from the cache: " << c.text;
    const std::string decoded = tokenizer.decode(c.ids, false);
    if (lossless)
      EXPECT_EQ(decoded, c.text) << "ids of: " << c.text;
    else
      EXPECT_EQ(tokenizer.encode(decoded, {.add_special = false}), c.ids) << "decoded: " << decoded;
  }
}

class GgufVocabulary : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufVocabulary, MatchesPublishedIds) {
  const std::string file = GetParam();
  MILLRACE_NEEDS_SHARED("tokenizers/llama.cpp/" + file);
  const std::string stem = "llama.cpp/" + (file.ends_with(".xz") ? file.substr(0, file.size() - 3) : file);
  const auto tokenizer = make_tokenizer(testing::VocabGguf(data("llama.cpp/" + file)).read());
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases(stem), tokenizer->spec().kind != "wordpiece");
}

INSTANTIATE_TEST_SUITE_P(Files, GgufVocabulary,
                         ::testing::Values("ggml-vocab-bert-bge.gguf", "ggml-vocab-llama-spm.gguf",
                                           "ggml-vocab-deepseek-llm.gguf.xz", "ggml-vocab-gpt-2.gguf.xz",
                                           "ggml-vocab-phi-3.gguf.xz"));

TEST(TokenizerVectors, Gpt2VocabMerges) {
  MILLRACE_NEEDS_SHARED("tokenizers/gpt2/vocab.json.xz");
  const auto tokenizer =
      make_tokenizer(read_vocab_merges(data("gpt2/vocab.json.xz"), data("gpt2/merges.txt.xz"), "", "gpt-2"));
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases("llama.cpp/ggml-vocab-gpt-2.gguf"));
}

TEST(TokenizerVectors, Llama3VocabMerges) {
  MILLRACE_NEEDS_SHARED("tokenizers/llama3/vocab.json.xz");
  const auto tokenizer =
      make_tokenizer(read_vocab_merges(data("llama3/vocab.json.xz"), data("llama3/merges.txt.xz"), "", "llama-bpe"));
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases("llama.cpp/ggml-vocab-llama-bpe.gguf"));
}

TEST(TokenizerVectors, Llama3Tiktoken) {
  MILLRACE_NEEDS_SHARED("tokenizers/llama3/tokenizer.model.xz");
  const std::string file = data("llama3/tokenizer.model.xz");
  EXPECT_EQ(sniff_tokenizer_file(file), "tiktoken");
  const auto tokenizer = make_tokenizer(read_tiktoken(file, "llama-bpe"));
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases("llama.cpp/ggml-vocab-llama-bpe.gguf"));
  EXPECT_EQ(tokenizer->vocab_size(), 128256);
  EXPECT_EQ(tokenizer->encode("<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"),
            (Ids{128000, 128006, 882, 128007, 271, 6151, 128009}));
  EXPECT_TRUE(tokenizer->is_eog(128009));
  EXPECT_TRUE(tokenizer->is_control(128000));
  const Ids spelled = tokenizer->encode("<|eot_id|>", kPlainVectors);
  EXPECT_GT(spelled.size(), 1u);
  EXPECT_EQ(tokenizer->decode(spelled, true), "<|eot_id|>");
}

TEST(TokenizerVectors, DerivedMergesAreThePublishedOnes) {
  MILLRACE_NEEDS_SHARED("tokenizers/llama3/tokenizer.model.xz");
  auto spec = read_tiktoken(data("llama3/tokenizer.model.xz"), "llama-bpe");
  ASSERT_TRUE(spec.ok());
  std::istringstream published(data("llama3/merges.txt.xz"));
  std::vector<std::string> expected;
  for (std::string line; std::getline(published, line);) expected.push_back(line);
  EXPECT_EQ(derive_merges(*spec), expected);
}

TEST(TokenizerVectors, Qwen2WithItsConfig) {
  MILLRACE_NEEDS_SHARED("tokenizers/qwen2/vocab.json.xz");
  auto spec = read_vocab_merges(data("qwen2/vocab.json.xz"), data("qwen2/merges.txt.xz"),
                                data("qwen2/added_tokens.json"), "qwen2");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  for (const char* file : {"qwen2/tokenizer_config.json", "qwen2/special_tokens_map.json"}) {
    const auto applied = apply_tokenizer_config(*spec, data(file));
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  const auto tokenizer = make_tokenizer(std::move(spec));
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases("llama.cpp/ggml-vocab-qwen2.gguf"));
  EXPECT_EQ(tokenizer->spec().eos, 151645);
  EXPECT_EQ(tokenizer->spec().pad, 151643);
  EXPECT_TRUE(tokenizer->is_eog(151643));
  EXPECT_EQ(tokenizer->encode("<|im_start|>user\nhi<|im_end|>"), (Ids{151644, 872, 198, 6023, 151645}));
  // <tool_call> is an added token that is not special: it is always matched and never skipped.
  EXPECT_EQ(tokenizer->encode("<tool_call>", kPlainVectors), (Ids{151657}));
  EXPECT_EQ(tokenizer->decode({151644, 151657}, true), "<tool_call>");
}

TEST(TokenizerVectors, Phi3TokenizerJson) {
  MILLRACE_NEEDS_SHARED("tokenizers/phi3/tokenizer.json.xz");
  auto spec = read_tokenizer_json(data("phi3/tokenizer.json.xz"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_TRUE(spec->add_bos);
  const auto applied = apply_tokenizer_config(*spec, data("phi3/tokenizer_config.json"));
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  const auto tokenizer = make_tokenizer(std::move(spec));
  ASSERT_TRUE(tokenizer);
  expect_cases(*tokenizer, read_cases("llama.cpp/ggml-vocab-phi-3.gguf"));
}

// The vocabularies of these are not available, but their ids still constrain where words may end: every word has at
// least one id, and a run of digits exactly one per word.
TEST(TokenizerVectors, PreTokenizersAgreeWithPublishedIds) {
  MILLRACE_NEEDS_SHARED("tokenizers/llama.cpp/ggml-vocab-qwen35.gguf.out");
  for (const std::string name : {"qwen35", "command-r", "qwen2", "llama-bpe", "gemma-4"}) {
    const auto pre = PreTokenizer::from_name(name == "gemma-4" ? "gemma4" : name);
    ASSERT_TRUE(pre.ok());
    for (const VectorCase& c : read_cases("llama.cpp/ggml-vocab-" + name + ".gguf")) {
      std::vector<uint32_t> ends, scratch;
      pre->split(c.text, ends, scratch);
      EXPECT_LE(ends.size(), c.ids.size()) << name << ": " << c.text;
      const bool digits = !c.text.empty() && c.text.find_first_not_of('3') == std::string::npos;
      if (digits && name != "gemma-4") {
        EXPECT_EQ(ends.size(), c.ids.size()) << name << ": " << c.text;
      }
    }
  }
}

std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"')
        rows.back().back() += text[++i];
      else if (c == '"')
        quoted = false;
      else
        rows.back().back() += c;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      rows.push_back({""});
    } else if (c != '\r') {
      rows.back().back() += c;
    }
  }
  return rows;
}

class TiktokenEncoding : public ::testing::TestWithParam<const char*> {};

TEST_P(TiktokenEncoding, MatchesPublishedIds) {
  const std::string name = GetParam();
  const std::string ranks = name == "p50k_edit" ? "p50k_base" : name;
  MILLRACE_NEEDS_SHARED("tokenizers/tiktoken/" + ranks + ".tiktoken.xz");
  const auto tokenizer = make_tokenizer(read_tiktoken(data("tiktoken/" + ranks + ".tiktoken.xz"), name));
  ASSERT_TRUE(tokenizer);
  size_t checked = 0;
  for (const auto& row : read_csv(data("tiktoken/" + name + "_encodings.csv"))) {
    if (row.size() != 3 || row[1].empty() || row[1][0] != '[') continue;
    const auto expected = nlohmann::json::parse(row[1]).get<Ids>();
    EXPECT_EQ(tokenizer->encode(row[0], kPlainVectors), expected) << row[0];
    EXPECT_EQ(tokenizer->decode(expected, false), row[0]);
    ++checked;
  }
  EXPECT_GT(checked, 400u);
}

INSTANTIATE_TEST_SUITE_P(Encodings, TiktokenEncoding,
                         ::testing::Values("r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base"));

TEST(TokenizerVectors, SentencePieceModels) {
  MILLRACE_NEEDS_SHARED("tokenizers/sentencepiece/expected_ids.json");
  const auto expected = nlohmann::json::parse(data("sentencepiece/expected_ids.json"));
  const auto texts = expected["texts"].get<std::vector<std::string>>();
  size_t models = 0;
  for (const auto& [name, model] : expected["models"].items()) {
    SCOPED_TRACE(name);
    std::string bytes = data(name);
    if (bytes.empty()) bytes = data(name + ".xz");
    EXPECT_EQ(sniff_tokenizer_file(bytes), "sentencepiece");
    const auto tokenizer = make_tokenizer(read_sentencepiece_model(bytes));
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(tokenizer->vocab_size(), model["vocab_size"].get<int>());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto ids = model["ids"][i].get<Ids>();
      EXPECT_EQ(tokenizer->encode(texts[i], kPlainVectors), ids) << texts[i];
      const char* key = model.contains("decoded") ? "decoded" : "text";
      EXPECT_EQ(tokenizer->decode(ids, false), model[key][i].get<std::string>()) << texts[i];
    }
    ++models;
  }
  EXPECT_EQ(models, 10u);
}

TEST(TokenizerVectors, MistralTokenizerJson) {
  MILLRACE_NEEDS_SHARED("tokenizers/mistral/mistral-7b-v0.3.tokenizer.json.xz");
  const auto expected = nlohmann::json::parse(data("sentencepiece/expected_ids.json"));
  const auto tokenizer = make_tokenizer(read_tokenizer_json(data("mistral/mistral-7b-v0.3.tokenizer.json.xz")));
  ASSERT_TRUE(tokenizer);
  const auto texts = expected["texts"].get<std::vector<std::string>>();
  for (const auto& [name, model] : expected["models"].items()) {
    if (name.find(".model.v3") == std::string::npos) continue;
    for (size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(tokenizer->encode(texts[i], kPlainVectors), model["ids"][i].get<Ids>()) << texts[i];
  }
  EXPECT_EQ(tokenizer->encode("[INST] hi[/INST]"), (Ids{1, 3, 12782, 4}));
}

TEST(TokenizerVectors, Llama2cTokenizerIsTheSentencePieceModel) {
  MILLRACE_NEEDS_SHARED("tokenizers/sentencepiece/llama2_tokenizer.bin.xz");
  const auto bin = make_tokenizer(read_llama2c_tokenizer(data("sentencepiece/llama2_tokenizer.bin.xz"), 32000));
  const auto model = make_tokenizer(read_sentencepiece_model(data("sentencepiece/llama2_tokenizer.model")));
  ASSERT_TRUE(bin && model);
  EXPECT_EQ(bin->spec().tokens, model->spec().tokens);
  const std::string text = testing::read_maybe_xz(testing::shared_data() / "text" / "en_frankenstein.txt.xz");
  EXPECT_EQ(bin->encode(text, kPlainVectors), model->encode(text, kPlainVectors));
  EXPECT_EQ(model->decode(model->encode(text), true), text);
}

TEST(TokenizerVectors, TinyBpeInThreeForms) {
  MILLRACE_NEEDS_SHARED("tokenizers/tiny/tiny_bpe_tokenizer.json");
  const auto json = make_tokenizer(read_tokenizer_json(data("tiny/tiny_bpe_tokenizer.json")));
  const auto files = make_tokenizer(
      read_vocab_merges(data("tiny/tiny_bpe_vocab.json"), data("tiny/tiny_bpe_merges.txt"), "", "qwen2"));
  const auto ranks = make_tokenizer(read_tiktoken(data("tiny/tiktoken_small.model"), "cl100k"));
  ASSERT_TRUE(json && files && ranks);
  const std::string text = testing::read_maybe_xz(testing::shared_data() / "text" / "tinyshakespeare.txt.xz");
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(json->encode(text, kPlainVectors), files->encode(text, kPlainVectors));
  for (const auto* tokenizer : {&json, &files, &ranks})
    EXPECT_EQ((*tokenizer)->decode((*tokenizer)->encode(text, kPlainVectors), false), text);
}

TEST(TokenizerVectors, GptNeoxRoundTrip) {
  MILLRACE_NEEDS_SHARED("tokenizers/gptneox/20B_tokenizer.json.xz");
  const auto tokenizer = make_tokenizer(read_tokenizer_json(data("gptneox/20B_tokenizer.json.xz")));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), 50277);
  EXPECT_EQ(tokenizer->encode("Hello world"), (Ids{12092, 1533}));
  const std::string text = "Hello    world\n        x = 1 \xC3\xA9<|endoftext|>";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), false), text);
}

TEST(TokenizerVectors, RwkvIsGreedyLongestMatch) {
  MILLRACE_NEEDS_SHARED("tokenizers/rwkv/rwkv_vocab_v20230424.txt.xz");
  const auto tokenizer = make_tokenizer(read_rwkv_vocab(data("rwkv/rwkv_vocab_v20230424.txt.xz")));
  ASSERT_TRUE(tokenizer);
  const auto& tokens = tokenizer->spec().tokens;
  const std::string text = testing::read_maybe_xz(testing::shared_data() / "text" / "zh_prose.txt.xz").substr(0, 3000);
  Ids expected;
  for (size_t pos = 0; pos < text.size();) {
    size_t best = 0;
    for (size_t i = 1; i < tokens.size(); ++i) {
      if (tokens[i].size() > tokens[best].size() * (best != 0) && !tokens[i].empty() &&
          text.compare(pos, tokens[i].size(), tokens[i]) == 0)
        best = i;
    }
    expected.push_back(static_cast<TokenId>(best));
    pos += tokens[best].size();
  }
  EXPECT_EQ(tokenizer->encode(text), expected);
  EXPECT_EQ(tokenizer->decode(expected, false), text);
}

}  // namespace
}  // namespace millrace
