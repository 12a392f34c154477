// Weights that are packed while the model runs: the same bits before, meanwhile and after, damage fails requests, and
// the memory accounts know both forms.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "models/background_packer.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class BackgroundPacking : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = fs::temp_directory_path() / ("background_packing." + std::to_string(getpid()) + ".gguf");
    fs::copy_file(source(), model_, fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove(model_); }

  static fs::path source(const std::string& name = "llama3") {
    return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / name / "model.gguf";
  }

  std::shared_ptr<const LanguageModel> load(bool background, LoadOptions options = {}) const {
    options.threads = 2;
    options.context = 64;
    options.pack_in_background = background;
    auto model = LanguageModel::load(model_.string(), options);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    return model.ok() ? *model : nullptr;
  }
  static BackgroundPacker* packing(const LanguageModel& model) { return model.parts().model->packing(); }

  static Request request() {
    Request request;
    request.prompt = {1, 5, 9, 11};
    request.max_tokens = 5;
    request.ignore_eos = true;
    return request;
  }
  static std::vector<float> logits(const std::shared_ptr<const LanguageModel>& model) {
    auto core = EngineCore::create(model, {.threads = 2, .max_streams = 1});
    EXPECT_TRUE(core.ok());
    EXPECT_TRUE((*core)->add(1, request()).ok());
    std::vector<float> out;
    std::vector<TokenEvent> events;
    while (!(*core)->idle()) {
      (*core)->step(events);
      out.insert(out.end(), (*core)->last_logits(), (*core)->last_logits() + model->info().vocab);
    }
    return out;
  }

  // Every matrix of the layers, and the head.
  static std::vector<PackingState*> states(const LanguageModel& model) {
    const Model& m = *model.parts().model;
    std::vector<PackingState*> out = {m.head().packing};
    for (int64_t i = 0; i < m.spec().layer_count(); ++i) {
      const LayerWeights& layer = m.layer(i);
      for (const Weight* weight :
           {&layer.q, &layer.k, &layer.v, &layer.output, &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down})
        out.push_back(weight->packing);
    }
    return out;
  }

  // The stored bytes of a tensor, overwritten from `at` on with ones: NaN in every float format and scale.
  void damage(const std::string& tensor, int64_t at) const {
    int64_t offset = -1;
    {
      auto files = open_model(model_.string());
      ASSERT_TRUE(files.ok());
      const StoredTensor* stored = files->find(tensor);
      ASSERT_NE(stored, nullptr);
      offset = static_cast<int64_t>(stored->offset) + at;
    }
    std::fstream file(model_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file.write("\xff\xff\xff\xff", 4);
  }

  static int64_t account(const LanguageModel& model, const std::string& name) {
    for (const MemoryAccount& one : model.parts().accounts->list())
      if (one.name == name) return one.bytes;
    return -1;
  }

  fs::path model_;
};

TEST_F(BackgroundPacking, SameBitsBeforeDuringAndAfter) {
  const std::vector<float> expected = logits(load(false));
  const auto model = load(true);
  ASSERT_NE(packing(*model), nullptr);
  EXPECT_EQ(logits(model), expected) << "as it comes";
  ASSERT_TRUE(packing(*model)->finish().ok());
  EXPECT_TRUE(packing(*model)->complete());
  const std::vector<PackingState*> all = states(*model);
  for (const PackingState* state : all) {
    ASSERT_NE(state, nullptr);
    EXPECT_TRUE(state->complete);
  }
  EXPECT_EQ(logits(model), expected) << "after";
  for (size_t step : {1u, 2u, 3u}) {
    for (size_t i = 0; i < all.size(); ++i) all[i]->complete = i % step != 0;
    EXPECT_EQ(logits(model), expected) << "every " << step << "th matrix is not packed";
  }
}

TEST_F(BackgroundPacking, OnlyWhereItCanBe) {
  EXPECT_EQ(packing(*load(false)), nullptr);
  EXPECT_EQ(packing(*load(true, {.memory = int64_t{1} << 30})), nullptr) << "a budget";
  const fs::path cache = model_.string() + ".packed";
  EXPECT_EQ(packing(*load(true, {.packed_cache = true, .packed_cache_path = cache.string()})), nullptr);
  fs::remove(cache);
  auto embedded = LanguageModel::load("", {.context = 64, .pack_in_background = true});
  if (embedded.ok()) {
    EXPECT_EQ(packing(**embedded), nullptr) << "is not in a mapped file";
  }
}

TEST_F(BackgroundPacking, BothFormsAreInTheMemoryAccount) {
  const auto plain = load(false);
  EXPECT_EQ(account(*plain, "loading"), 0);
  const auto model = load(true);
  int64_t stored = 0;
  for (const StoredTensor& tensor : model->parts().files->tensors)
    if (tensor.tensor.rank > 1 && tensor.name != "token_embd.weight")
      stored += tensor.tensor.format->row_bytes(tensor.tensor.values());
  const int64_t meanwhile = account(*model, "loading");
  if (!packing(*model)->complete()) {
    EXPECT_EQ(meanwhile, stored);
  }
  ASSERT_TRUE(packing(*model)->finish().ok());
  EXPECT_EQ(account(*model, "loading"), 0);
  EXPECT_GT(account(*model, "weights"), account(*plain, "weights")) << "has the threads' slices";
}

TEST_F(BackgroundPacking, DamageFailsRequests) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama_tied_mqa", "token_embd.weight"}, {"llama3", "blk.0.attn_q.weight"}, {"llama3", "blk.1.ffn_down.weight"}};
  for (const auto& [name, tensor] : cases) {
    fs::copy_file(source(name), model_, fs::copy_options::overwrite_existing);
    damage(tensor, 0);
    const auto eager = LanguageModel::load(model_.string(), {.threads = 1, .context = 64});
    ASSERT_FALSE(eager.ok());
    for (bool packed : {false, true}) {
      const auto model = load(true);
      auto core = EngineCore::create(model, {.threads = 2, .max_streams = 2});
      ASSERT_TRUE(core.ok());
      Request asked = request();
      asked.prompt.front() = 0;  // whose embedding is damaged
      ASSERT_TRUE((*core)->add(1, asked).ok());
      Request search = asked;
      search.beams = search.n = 2;
      if (packed) {
        EXPECT_FALSE(packing(*model)->finish().ok());
      } else {
        ASSERT_TRUE((*core)->add(2, search).ok());
      }
      std::vector<TokenEvent> events;
      for (int i = 0; i < 10 && !(*core)->idle(); ++i) (*core)->step(events);
      EXPECT_TRUE((*core)->idle());
      ASSERT_FALSE(events.empty());
      for (const TokenEvent& event : events) {
        EXPECT_EQ(event.finish, FinishReason::error) << tensor;
        EXPECT_EQ(event.error.kind, ErrorKind::corrupt);
        EXPECT_NE(event.error.message.find(model_.string() + ": tensor " + tensor + ": NaN or infinity in row 0"),
                  std::string::npos)
            << event.error.message;
      }
      const auto refused = (*core)->add(3, asked);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::corrupt);
    }
  }
}

// Rows that no pass reads would not be noticed.
TEST_F(BackgroundPacking, DamagedTablesEndTheLoad) {
  damage("token_embd.weight", 0);
  const auto model = LanguageModel::load(model_.string(), {.threads = 1, .context = 64, .pack_in_background = true});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().kind, ErrorKind::corrupt);
}

TEST_F(BackgroundPacking, EndsAtAnyTime) {
  for (int steps = 0; steps < 4; ++steps) {
    const auto model = load(true);
    auto core = EngineCore::create(model, {.threads = 2, .max_streams = 1});
    ASSERT_TRUE(core.ok());
    ASSERT_TRUE((*core)->add(1, request()).ok());
    std::vector<TokenEvent> events;
    for (int i = 0; i < steps; ++i) (*core)->step(events);
    EXPECT_EQ(std::ssize(events), steps);
  }
}

}  // namespace
}  // namespace millrace
