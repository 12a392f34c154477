// Conversion: every golden model and the trained checkpoints keep their logits, text and templates in every file kind.
// golden_test.cc checks that the folders themselves match the independent reference.
#include "models/convert/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "conversions.h"
#include "shared_data.h"

namespace millrace {
namespace {

// Models with another mixer than attention have tests of their own (convert_families_test.cc, convert_folders_test.cc).
// GGUF files of gpt-oss, Gemma 4 and Gemma 3n do not become folders.
bool converted(const std::string& name) {
  for (const char* family : {"mamba", "deepseek", "falcon_h1", "gpt_oss", "qwen3next", "qwen35", "gemma4", "gemma3n"})
    if (name.starts_with(family)) return false;
  return true;
}

std::vector<std::string> convertible_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden()))
    if (fs::exists(entry.path() / "expected.json") && converted(entry.path().filename()))
      names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

void expect_same_text(const std::string& left, const std::string& right) {
  SCOPED_TRACE(right);
  auto a = open_model_files(left), b = open_model_files(right);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->chat_template, b->chat_template);
  ASSERT_TRUE(a->tokenizer && b->tokenizer);
  EXPECT_EQ(a->tokenizer->eos, b->tokenizer->eos);
  auto x = Tokenizer::create(*a->tokenizer), y = Tokenizer::create(*b->tokenizer);
  ASSERT_TRUE(x.ok() && y.ok()) << (y.ok() ? "" : y.error().message);
  for (const char* text : {"Once upon a time, there were 123 dogs.", "the\n\n  cats' hats\t\xE2\x82\xAC \xC3\xA9", " ",
                           "<|turn|>x<|eos|>"}) {
    const auto ids = (*x)->encode(text);
    EXPECT_EQ(ids, (*y)->encode(text)) << text;
    EXPECT_EQ((*x)->decode(ids), (*y)->decode(ids)) << text;
  }
}

class ConvertGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ConvertGolden, RoundTripKeepsLogitsAndText) {
  const fs::path folder = golden() / GetParam();
  const auto expected = nlohmann::json::parse(testing::read_file(folder / "expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
  // LongRoPE takes its short factors up to the original context of 96 in these models.
  const int64_t context = GetParam() == "phi3_longrope_short" || GetParam() == "phi4_mini" ? 96 : 0;
  const auto want = logits_of(folder, tokens, context);
  Scratch scratch;
  make(folder, scratch / "there.gguf");
  make(scratch / "there.gguf", scratch / "back");
  for (const char* name : {"there.gguf", "back"}) {
    EXPECT_LT(conversion_error(logits_of(scratch / name, tokens, context), want), 1e-5) << name;
    expect_same_text(folder, scratch / name);
  }
  for (const auto& entry : fs::directory_iterator(folder)) {  // a GGUF file written by another converter
    if (entry.path().extension() != ".gguf" || entry.path().filename().string().find("00002-of") != std::string::npos)
      continue;
    make(entry.path(), scratch / "folder");
    EXPECT_LT(conversion_error(logits_of(scratch / "folder", tokens, context), want), 1e-5);
    expect_same_text(folder, scratch / "folder");
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertGolden, ::testing::ValuesIn(convertible_names()),
                         [](const auto& test) { return test.param; });

TEST(Convert, RoundsMatricesOnly) {
  const auto expected = nlohmann::json::parse(testing::read_file(golden() / "qwen3moe" / "expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
  Scratch scratch;
  auto report = convert(golden() / "qwen3moe", scratch / "q8.gguf", "q8_0");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_GT(report->formats["q8_0"].first, 0);
  ASSERT_FALSE(report->kept.empty());
  EXPECT_EQ(report->kept.front().why, "router");
  auto files = open_model_files(scratch / "q8.gguf");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->find("token_embd.weight")->type_name, "Q8_0");
  EXPECT_EQ(files->find("blk.0.ffn_gate_inp.weight")->type_name, "F32");
  EXPECT_EQ(files->find("output_norm.weight")->type_name, "F32");
  const auto want = logits_of(golden() / "qwen3moe", tokens);
  // Rounding may send a token to other experts, so only a dense model is close everywhere.
  make(golden() / "llama", scratch / "dense.gguf", "q8_0");
  const double error =
      conversion_error(logits_of(scratch / "dense.gguf", tokens), logits_of(golden() / "llama", tokens));
  EXPECT_LT(error, 0.05);
  EXPECT_GT(error, 0.0);
  // The same kind again, and a folder from it, whose F32 holds the rounded values exactly.
  make(scratch / "q8.gguf", scratch / "again.gguf");
  make(scratch / "q8.gguf", scratch / "folder");
  EXPECT_EQ(logits_of(scratch / "q8.gguf", tokens), logits_of(scratch / "again.gguf", tokens));
  EXPECT_LT(conversion_error(logits_of(scratch / "folder", tokens), want), 0.3);
}

TEST(Convert, FolderToFolderInAnotherFormat) {
  Scratch scratch;
  make(golden() / "llama", scratch / "half", "bf16");
  auto files = open_model_files(scratch / "half");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->find("model.layers.0.mlp.up_proj.weight")->type_name, "BF16");
  EXPECT_EQ(files->find("model.norm.weight")->type_name, "F32");
  EXPECT_EQ((*files->config)["torch_dtype"], "bfloat16");
  expect_same_text(golden() / "llama", scratch / "half");
}

TEST(Convert, RefusesWithTheRightErrorKind) {
  Scratch scratch;
  const std::string folder = golden() / "llama", gguf = golden() / "llama" / "model.gguf";
  auto kind = [&](const Result<ConvertReport>& result) {
    return result.ok() ? std::string("done") : std::to_string(exit_code(result.error().kind));
  };
  EXPECT_EQ(kind(convert(folder, scratch / "x.gguf", "q9_9")), "4");
  EXPECT_EQ(kind(convert(gguf, scratch / "folder", "q8_0")), "4");
  EXPECT_EQ(kind(convert(folder, folder)), "2");
  EXPECT_EQ(kind(convert(gguf, gguf, "", "", true)), "2");
  EXPECT_EQ(kind(convert(scratch / "absent", scratch / "x.gguf")), "3");
  std::ofstream(scratch / "broken.bin") << "no checkpoint at all, but long enough for a header";
  EXPECT_EQ(kind(convert(scratch / "broken.bin", scratch / "x.gguf")), "3");
  std::ofstream(scratch / "cut.gguf") << testing::read_file(gguf).substr(0, 9000);
  EXPECT_EQ(kind(convert(scratch / "cut.gguf", scratch / "folder")), "3");
  EXPECT_FALSE(fs::exists(scratch / "x.gguf"));
  EXPECT_FALSE(fs::exists(scratch / "folder"));
  make(folder, scratch / "x.gguf");
  EXPECT_EQ(kind(convert(folder, scratch / "x.gguf")), "2");
  EXPECT_EQ(kind(convert(folder, scratch / "x.gguf", "", "", true)), "done");
}

// Checks `path` against a model's entry in reference_outputs.json.
void check_reference(const std::string& path, const nlohmann::json& model, const nlohmann::json& text) {
  SCOPED_TRACE(path);
  auto loaded = TestRunner::load(path, {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  TestRunner& runner = **loaded;
  auto files = open_model_files(path);
  ASSERT_TRUE(files.ok() && files->tokenizer);
  auto tokenizer = Tokenizer::create(*files->tokenizer);
  ASSERT_TRUE(tokenizer.ok());
  const auto vocab = static_cast<size_t>(runner.model().spec().vocab);
  for (const char* part : {"from_bos", "prompted"}) {
    const auto prompt = model[part]["prompt_ids"].get<std::vector<TokenId>>();
    const auto greedy = model[part]["greedy_ids"].get<std::vector<TokenId>>();
    // The ids show whether greedy_ids starts with the prompt.
    const bool whole = std::equal(prompt.begin(), prompt.end(), greedy.begin());
    std::vector<TokenId> all = whole ? std::vector<TokenId>() : prompt;
    all.insert(all.end(), greedy.begin(), greedy.end());
    const auto logits = runner.logits(all);
    for (size_t i = prompt.size(); i < all.size(); ++i) {
      auto row = logits.begin() + static_cast<ptrdiff_t>((i - 1) * vocab);
      ASSERT_EQ(std::max_element(row, row + static_cast<ptrdiff_t>(vocab)) - row, all[i]) << part << " step " << i;
    }
    for (const auto& position : model[part]["positions"]) {
      const float* row = logits.data() + position["pos"].get<size_t>() * vocab;
      for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(row[i], position["logits_0_7"][i].get<double>(), 1e-3);
      for (const auto& top : position["top5"]) EXPECT_NEAR(row[top[0].get<size_t>()], top[1].get<double>(), 1e-3);
    }
    const std::string decoded = (*tokenizer)->decode(all, true);
    const auto want = model[part]["greedy_text"].get<std::string>();
    EXPECT_NE(decoded.find(want.substr(0, want.size() - 1)), std::string::npos) << decoded << "\n---\n" << want;
  }
  const auto ids = model["text_ids"].get<std::vector<TokenId>>();
  EXPECT_EQ((*tokenizer)->encode(text.get<std::string>()), ids);
  const auto logits = runner.logits(ids);
  double nll = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const float* row = logits.data() + i * vocab;
    double sum = 0;
    const double most = *std::max_element(row, row + vocab);
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - most);
    nll += most + std::log(sum) - row[static_cast<size_t>(ids[i + 1])];
  }
  EXPECT_NEAR(nll, model["text_nll_sum"].get<double>(), 1e-3);
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(Convert, TrainedCheckpointsAgreeWithTheReference) {
  MILLRACE_NEEDS_SHARED("weights/reference_outputs.json");
  const fs::path weights = testing::shared_data() / "weights";
  const auto reference = nlohmann::json::parse(testing::read_file(weights / "reference_outputs.json"));
  for (const auto& [name, model] : reference["models"].items()) {
    SCOPED_TRACE(name);
    Scratch scratch;
    const std::string checkpoint = weights / model["from_bos"]["file"].get<std::string>();
    make(checkpoint, scratch / "m.gguf");
    make(checkpoint, scratch / "m");
    make(scratch / "m", scratch / "again.gguf");
    for (const char* out : {"m.gguf", "m", "again.gguf"}) check_reference(scratch / out, model, reference["text"]);
  }
}

TEST(Convert, CheckpointsNeedTheirOwnTokenizer) {
  MILLRACE_NEEDS_SHARED("weights/stories260K/tok512.bin");
  const fs::path weights = testing::shared_data() / "weights";
  Scratch scratch;
  fs::copy(weights / "stories260K/stories260K.bin", scratch / "m.bin");
  auto expect_error = [&](const std::string& tokenizer, ErrorKind kind, const char* word) {
    auto report = convert(scratch / "m.bin", scratch / "m.gguf", "", tokenizer);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().kind, kind);
    EXPECT_NE(report.error().message.find(word), std::string::npos) << report.error().message;
  };
  expect_error("", ErrorKind::user, "--tokenizer");
  expect_error(weights / "stories3M/tok4096.bin", ErrorKind::corrupt, "4096");
  fs::copy(weights / "stories260K/tok512.bin", scratch / "tok1.bin");
  EXPECT_TRUE(convert(scratch / "m.bin", scratch / "only.gguf").ok());
  fs::copy(weights / "stories260K/tok512.bin", scratch / "tok2.bin");
  expect_error("", ErrorKind::user, "several");
  EXPECT_TRUE(convert(scratch / "m.bin", scratch / "m.gguf", "", weights / "stories260K/tok512.model").ok());
}

TEST(Convert, TinyRandomFoldersKeepTheirLogits) {
  MILLRACE_NEEDS_SHARED("weights/tiny-random-hf");
  const fs::path folders = testing::shared_data() / "weights/tiny-random-hf";
  const std::vector<TokenId> tokens = {1, 17, 200, 3, 4, 99, 5, 6, 7, 255};
  for (const char* name : {"tiny_llama3", "tiny_llama3_tied", "tiny_mistral", "tiny_qwen3", "tiny_qwen3_sharded",
                           "tiny_gemma3", "tiny_qwen3_5", "tiny_gemma4"}) {
    SCOPED_TRACE(name);
    Scratch scratch;
    const auto want = logits_of(folders / name, tokens);
    ASSERT_TRUE(std::ranges::all_of(want, [](float x) { return std::isfinite(x); }));
    auto report = convert(folders / name, scratch / "f32.gguf", "f32");
    ASSERT_TRUE(report.ok()) << report.error().message;
    // BF16 rounds activations, too; Gemma 4 does not divide scores by the heads' dims, so that rounding shows more.
    const double bound = std::string_view(name) == "tiny_gemma4" ? 0.2 : 2e-2;
    EXPECT_LT(conversion_error(logits_of(scratch / "f32.gguf", tokens), want), bound);
    ASSERT_TRUE(convert(folders / name, scratch / "same.gguf").ok());
    EXPECT_LT(conversion_error(logits_of(scratch / "same.gguf", tokens), want), 1e-5) << "in the folder's own format";
  }
}

TEST(Convert, GemmaFourFilesDoNotBecomeFolders) {
  for (const char* name : {"gemma4", "gemma4_e", "gemma4_moe", "gemma3n"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const std::string from = golden() / name / "model.gguf";
    const auto tokens = nlohmann::json::parse(testing::read_file(golden() / name / "expected.json"))["tokens"]
                            .get<std::vector<TokenId>>();
    const auto want = logits_of(from, tokens);
    make(from, scratch / "f32.gguf", "f32");
    EXPECT_LT(conversion_error(logits_of(scratch / "f32.gguf", tokens), want), 1e-5);
    make(from, scratch / "q8_0.gguf", "q8_0");  // scores are not divided by the heads' dims, so rounding shows more
    EXPECT_LT(conversion_error(logits_of(scratch / "q8_0.gguf", tokens), want), 0.4);
    const auto refused = convert(from, scratch / "folder");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_NE(refused.error().message.find("convert it to a GGUF file"), std::string::npos) << refused.error().message;
  }
}

TEST(Convert, AQuantizedFolderOfGemmaFourIsToldWhatRemains) {
  const Scratch scratch;
  const std::string folder = scratch / "quantized";
  fs::copy(golden() / "gemma4", folder, fs::copy_options::recursive);
  auto config = nlohmann::json::parse(testing::read_file(folder + "/config.json"));
  config["quantization"] = {{"group_size", 64}, {"bits", 4}};  // as MLX says it
  std::ofstream(folder + "/config.json") << config;
  const auto refused = convert(folder, scratch / "out.gguf");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_NE(refused.error().message.find("or run the quantized folder as it is"), std::string::npos)
      << refused.error().message;
}

// Without the order or the transform of the inputs the columns would multiply others.
TEST(Convert, RefusesCheckpointsWhoseColumnsAreMoved) {
  for (const auto& [name, part] : {std::pair{"gptq_4_act_order", "input_order"}, {"quip_sharp_2", "hadamard"}}) {
    const Scratch scratch;
    const auto report = convert((golden() / "quantized" / name).string(), scratch / "out.gguf");
    ASSERT_FALSE(report.ok()) << name;
    EXPECT_EQ(report.error().kind, ErrorKind::unsupported);
    EXPECT_NE(report.error().message.find(part), std::string::npos) << report.error().message;
    EXPECT_NE(report.error().message.find("cannot be converted"), std::string::npos) << report.error().message;
  }
}

}  // namespace
}  // namespace millrace
