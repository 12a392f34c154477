// Hidden states against the reference's logits, poolings against each other, and independence of texts in a batch.
#include "evaluate/embedder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "base/philox.h"
#include "evaluate/golden_floats_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden";

std::shared_ptr<const LanguageModel> load(const fs::path& path) {
  auto model = LanguageModel::load(path, {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

std::vector<std::vector<float>> embed(const std::shared_ptr<const LanguageModel>& model,
                                      const std::vector<std::vector<TokenId>>& texts, Pooling pooling,
                                      EmbedderOptions options = {}) {
  options.threads = std::max(1, options.threads);
  options.context = std::min(options.context, model->parts().model->context());
  auto embedder = Embedder::create(model, options);
  EXPECT_TRUE(embedder.ok()) << (embedder.ok() ? "" : embedder.error().message);
  std::vector<std::vector<float>> out;
  auto done = (*embedder)->run(texts, pooling, [&](size_t text, std::vector<float> values) -> Result<void> {
    EXPECT_EQ(text, out.size());
    out.push_back(std::move(values));
    return {};
  });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return out;
}

std::vector<TokenId> some_tokens(uint64_t seed, uint64_t count, int64_t vocab) {
  std::vector<TokenId> out;
  for (uint64_t i = 0; i < count; ++i)
    out.push_back(static_cast<TokenId>(philox_uniform(7, seed, i) * static_cast<double>(vocab)));
  return out;
}

// The reference's logits are its hidden states times the head, so ours must be too.
TEST(Embedder, HiddenStatesReproduceReferenceLogits) {
  for (const auto& [name, head] : {std::pair("llama", "lm_head.weight"),
                                   {"qwen3", "model.embed_tokens.weight"},
                                   {"olmo2", "lm_head.weight"},
                                   {"gpt2", "wte.weight"}}) {
    const auto model = load(kGolden / name);
    ASSERT_TRUE(model) << name;
    std::ifstream file(kGolden / name / "expected.json");
    const auto expected = nlohmann::json::parse(file);
    const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
    const auto logits = floats_of(expected["logits"].get<std::string>());
    const auto hidden = embed(model, {tokens}, Pooling::none, {.kv_format = "f32"}).at(0);
    const auto width = static_cast<size_t>(model->parts().model->spec().width),
               vocab = static_cast<size_t>(model->info().vocab);
    ASSERT_EQ(hidden.size(), tokens.size() * width) << name;
    const StoredTensor* stored = model->parts().files->find(head);
    ASSERT_TRUE(stored) << name;
    std::vector<float> weight(vocab * width);
    for (size_t v = 0; v < vocab; ++v)
      stored->tensor.format->decode(
          stored->tensor.data + static_cast<int64_t>(v) * stored->tensor.format->row_bytes(static_cast<int64_t>(width)),
          weight.data() + v * width, static_cast<int64_t>(width));
    double worst = 0, largest = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (size_t v = 0; v < vocab; ++v) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) sum += static_cast<double>(hidden[t * width + i]) * weight[v * width + i];
        worst = std::max(worst, std::abs(sum - logits[t * vocab + v]));
        largest = std::max(largest, std::abs(static_cast<double>(logits[t * vocab + v])));
      }
    }
    EXPECT_LT(worst / largest, 1e-4) << name;
  }
}

TEST(Embedder, PoolingsUseTheSameHiddenStates) {
  const auto model = load(kGolden / "llama3" / "model.gguf");
  ASSERT_TRUE(model);
  const auto tokens = some_tokens(1, 21, model->info().vocab);
  const auto all = embed(model, {tokens}, Pooling::none).at(0);
  const size_t width = all.size() / tokens.size();
  EXPECT_EQ(embed(model, {tokens}, Pooling::last).at(0),
            std::vector<float>(all.end() - static_cast<ptrdiff_t>(width), all.end()));
  EXPECT_EQ(embed(model, {tokens}, Pooling::cls).at(0),
            std::vector<float>(all.begin(), all.begin() + static_cast<ptrdiff_t>(width)));
  const auto mean = embed(model, {tokens}, Pooling::mean).at(0);
  ASSERT_EQ(mean.size(), width);
  for (size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (size_t t = 0; t < tokens.size(); ++t) sum += all[t * width + i];
    EXPECT_EQ(mean[i], static_cast<float>(sum / static_cast<double>(tokens.size())));
  }
}

TEST(Embedder, ResultsDoNotDependOnBatchesOrThreads) {
  for (const char* name : {"llama3", "gemma3", "qwen3moe"}) {
    const auto model = load(kGolden / name / "model.gguf");
    ASSERT_TRUE(model);
    std::vector<std::vector<TokenId>> texts;
    for (uint64_t i = 0; i < 12; ++i) texts.push_back(some_tokens(i, 1 + (i * 11) % 37, model->info().vocab));
    for (Pooling pooling : {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last}) {
      std::vector<std::vector<float>> alone;
      for (const auto& text : texts) alone.push_back(embed(model, {text}, pooling).at(0));
      EXPECT_EQ(embed(model, texts, pooling), alone) << name;
      for (int64_t batch : {1, 7, 40})
        EXPECT_EQ(embed(model, texts, pooling, {.threads = 2, .context = 40, .batch_tokens = batch}), alone)
            << name << batch;
    }
  }
}

TEST(Embedder, RejectsInvalidInput) {
  const auto model = load(kGolden / "llama3" / "model.gguf");
  ASSERT_TRUE(model);
  EXPECT_FALSE(Embedder::create(model, {.threads = 1, .context = 0}).ok());
  EXPECT_FALSE(Embedder::create(model, {.threads = 1, .context = int64_t{1} << 40}).ok());
  EXPECT_FALSE(Embedder::create(model, {.threads = 1, .kv_format = "q99"}).ok());
  auto embedder = Embedder::create(model, {.threads = 1, .context = 8});
  ASSERT_TRUE(embedder.ok());
  int64_t taken = 0;
  const auto sink = [&](size_t, std::vector<float>) -> Result<void> {
    ++taken;
    return {};
  };
  for (const auto& bad :
       {std::vector<TokenId>{}, std::vector<TokenId>(9, 1), std::vector<TokenId>{-1}, std::vector<TokenId>{1 << 30}}) {
    const std::vector<std::vector<TokenId>> texts = {{1, 2}, bad};
    EXPECT_FALSE((*embedder)->run(texts, Pooling::last, sink).ok());
  }
  EXPECT_EQ(taken, 0);
  // A sink error ends the run and releases all blocks.
  const std::vector<std::vector<TokenId>> texts(50, std::vector<TokenId>(8, 3));
  const auto failing = [](size_t, std::vector<float>) -> Result<void> { return Error::cancelled("enough"); };
  for (int i = 0; i < 20; ++i) EXPECT_FALSE((*embedder)->run(texts, Pooling::mean, failing).ok());
  EXPECT_TRUE((*embedder)->run(texts, Pooling::mean, sink).ok());
  EXPECT_EQ(taken, 50);
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("millrace_pooling_" + std::to_string(getpid()));
  Folder() {
    fs::create_directories(path / "1_Pooling");
    for (const auto& entry : fs::directory_iterator(kGolden / "llama"))
      if (entry.path().extension() != ".gguf") fs::create_symlink(entry.path(), path / entry.path().filename());
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& config) const { std::ofstream(path / "1_Pooling/config.json") << config; }
};

TEST(Pooling, ReadsTheModelsMetadata) {
  EXPECT_EQ(*model_pooling(*load(kGolden / "llama" / "model.gguf")->parts().files), Pooling::last);
  EXPECT_EQ(*model_pooling(*load(kGolden / "llama")->parts().files), Pooling::last);
  Folder folder;
  folder.write(R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})");
  const auto model = load(folder.path);
  ASSERT_TRUE(model);
  const ModelFiles& files = *model->parts().files;
  EXPECT_EQ(*model_pooling(files), Pooling::mean);
  folder.write(R"({"pooling_mode_cls_token": true})");
  EXPECT_EQ(*model_pooling(files), Pooling::cls);
  folder.write(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_FALSE(model_pooling(files).ok());
  folder.write(R"({"pooling_mode_weightedmean_tokens": true})");
  EXPECT_FALSE(model_pooling(files).ok());
  folder.write("{");
  EXPECT_FALSE(model_pooling(files).ok());

  ModelFiles gguf;
  gguf.architecture = "llama";
  const auto with = [&](nlohmann::ordered_json value) {
    gguf.config = std::make_shared<const nlohmann::ordered_json>(
        nlohmann::ordered_json{{"llama.pooling_type", std::move(value)}});
    return model_pooling(gguf);
  };
  EXPECT_EQ(*with(0), Pooling::none);
  EXPECT_EQ(*with(1), Pooling::mean);
  EXPECT_EQ(*with(2), Pooling::cls);
  EXPECT_EQ(*with(3), Pooling::last);
  EXPECT_FALSE(with(9).ok());
  EXPECT_FALSE(with("mean").ok());
}

TEST(Pooling, Normalizes) {
  std::vector<float> values = {3, 4};
  normalize(values);
  EXPECT_FLOAT_EQ(values[0], 0.6f);
  EXPECT_FLOAT_EQ(values[1], 0.8f);
  std::vector<float> zeros = {0, 0};
  normalize(zeros);
  EXPECT_EQ(zeros, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace millrace
