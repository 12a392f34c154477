// The identity of keys and values: its text from a computation of its own, and what changes it. Files of stored blocks
// hold it, so another text makes all of them useless.
#include "run/plan/kv_identity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>

#include "base/philox.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

fs::path identity_golden(const std::string& name) { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / name; }

// A model with a pool of its own.
struct Probed {
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<ModelRunner> runner;
  KvPool* pool = nullptr;  // the runner's

  explicit Probed(const fs::path& path, const char* format = "f16", int64_t block_tokens = 16, int64_t batch = 64,
                  int64_t longest = 128) {
    auto loaded = LanguageModel::load(path, {.threads = 1, .context = longest});
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    model = *loaded;
    const auto& parts = model->parts();
    auto made = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(1),
                                     .layout = {find_format(format), block_tokens, parts.model->kv_layers()},
                                     .blocks = 3,
                                     .limits = {batch, 1, longest}});
    EXPECT_TRUE(made.ok());
    runner = std::move(*made);
    pool = &runner->kv();
  }
  std::string identity() {
    auto text = kv_identity(*model, *runner);
    EXPECT_TRUE(text.ok());
    EXPECT_EQ(pool->free_blocks(), 3);
    return text.ok() ? *text : std::string();
  }
  // The part of the text that the weights determine.
  std::string given() {
    const std::string text = identity();
    const size_t from = text.find("arithmetic "), to = text.find('\n', from);
    return from == std::string::npos ? text : text.substr(from, to - from);
  }
  // The hash of all heads' keys and values of the first draws of seed 1, computed one token at a time.
  uint64_t computed(int64_t tokens) {
    const auto& parts = model->parts();
    const BlockId block = *pool->allocate();
    for (int64_t i = 0; i < tokens; ++i) {
      runner->start();
      runner->begin({&block, 1}, i);
      runner->add(static_cast<TokenId>(philox_uniform(1, 0, static_cast<uint64_t>(i)) *
                                       static_cast<double>(model->info().vocab)),
                  i);
      runner->forward();
    }
    uint64_t hash = 0;
    const auto& layers = parts.model->kv_layers();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const auto at = static_cast<int64_t>(layer);
      const auto bytes = static_cast<size_t>(tokens * pool->row_bytes(at));
      for (int64_t head = 0; head < layers[layer].kv_heads; ++head)
        for (const uint8_t* rows : {pool->keys(at, block, head), pool->values(at, block, head)})
          hash = XXH3_64bits_withSeed(rows, bytes, hash);
    }
    pool->release(block);
    return hash;
  }
};

TEST(KvIdentity, IsOfTheFirstTokensAndTheFiles) {
  struct Case {
    const char* format;
    int64_t block_tokens, batch, tokens;
  };
  for (const Case& one : {Case{"f32", 16, 64, 16}, {"f16", 32, 64, 16}, {"f32", 4, 64, 4}, {"f32", 16, 5, 5}}) {
    const fs::path path = identity_golden("llama3/model.gguf");
    Probed probed(path, one.format, one.block_tokens, one.batch);
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), std::min<size_t>(bytes.size(), 1 << 20));
    EXPECT_EQ(probed.identity(), fmt::format("model {}\narithmetic 1, {} tokens give {:016x}\ncontext 128\n"
                                             "file of {} bytes, begins {:016x}{:016x}\n",
                                             probed.model->info().name, one.tokens, probed.computed(one.tokens),
                                             bytes.size(), hash.high64, hash.low64));
  }
}

TEST(KvIdentity, ChangesWithFormatModelAndContext) {
  const fs::path path = identity_golden("llama3/model.gguf");
  const std::string plain = Probed(path, "f32").given();
  EXPECT_EQ(Probed(path, "f32").given(), plain);
  EXPECT_NE(Probed(path, "f16").given(), plain);
  EXPECT_NE(Probed(path, "bf16").given(), Probed(path, "f16").given());
  EXPECT_NE(Probed(identity_golden("llama/model.gguf"), "f32").given(), plain);
  const std::string shorter = Probed(path, "f32", 16, 64, 64).identity();
  EXPECT_NE(shorter.find("\ncontext 64\n"), std::string::npos) << shorter;
  EXPECT_NE(shorter, Probed(path, "f32").identity());
  Probed tiny(path, "f32", 16, 64, 3);
  EXPECT_NE(tiny.identity().find(", 3 tokens give "), std::string::npos) << tiny.identity();
}

TEST(KvIdentity, NeedsAFreeBlock) {
  Probed probed(identity_golden("llama3/model.gguf"));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(probed.pool->allocate().ok());
  const auto none = kv_identity(*probed.model, *probed.runner);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::resource);
}

// One changed value in any layer's key or value weights gives another hash; one in the head does not.
TEST(KvIdentity, ChangesWithEveryLayersWeights) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("kv_identity_" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy(identity_golden("llama") / name, folder / name);
  Probed probed(folder, "f32");
  const std::string plain = probed.given();
  const auto layers = probed.model->parts().model->kv_layers().size();
  std::vector<std::string> names = {"lm_head.weight"};
  for (size_t i = 0; i < layers; ++i)
    for (const char* matrix : {"k_proj", "v_proj"})
      names.push_back(fmt::format("model.layers.{}.self_attn.{}.weight", i, matrix));
  for (const std::string& name : names) {
    const StoredTensor* tensor = probed.model->parts().files->find(name);
    ASSERT_TRUE(tensor) << name;
    const auto at = static_cast<std::streamoff>(tensor->offset) + 3;  // the exponent of the first value
    const auto change = [&] {
      std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int before = file.get();
      file.seekp(at);
      file.put(static_cast<char>(before ^ 0x81));
    };
    change();
    EXPECT_EQ(Probed(folder, "f32").given() == plain, name == "lm_head.weight") << name;
    change();
  }
  EXPECT_EQ(Probed(folder, "f32").given(), plain);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
