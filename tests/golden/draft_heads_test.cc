// Heads and layers that draft from a model's hidden states, in their published file formats, against an independent
// reference (make_draft_heads.py); and files that must be refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "golden/expected.h"
#include "model_runner.h"
#include "models/draft_heads/eagle_layer.h"
#include "models/draft_heads/exit_adapter.h"
#include "models/draft_heads/medusa_heads.h"
#include "models/draft_heads/mtp_layer.h"
#include "models/mixers/mixer.h"
#include "models/visible.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::Expected;
using testing::TestRunner;

const fs::path kHeads = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/draft_heads";

// The target's residual streams before three layers, [tokens, 3, width].
struct Streams final : ForwardObserver {
  std::array<int64_t, 3> layers;
  std::vector<float> rows;
  void residual(int64_t layer, const float* from, int64_t tokens, int64_t width) override {
    rows.resize(static_cast<size_t>(3 * tokens * width));
    for (size_t i = 0; i < layers.size(); ++i)
      for (int64_t t = 0; t < tokens && layers[i] == layer; ++t)
        std::copy_n(from + t * width, width, rows.begin() + (3 * t + static_cast<int64_t>(i)) * width);
  }
};

class DraftHeads : public ::testing::Test {
 protected:
  void SetUp() override {
    load("target");
    table_ = make_kernel_table(*select_isa());
  }
  void load(const char* name) {
    auto files = open_model_files((kHeads / name).string());
    ASSERT_TRUE(files.ok()) << files.error().message;
    files_ = std::make_shared<const ModelFiles>(std::move(*files));
    auto target = TestRunner::load(files_, {});
    ASSERT_TRUE(target.ok()) << target.error().message;
    target_ = std::move(*target);
  }

  // Final hidden states of all tokens.
  std::vector<float> hidden(const std::vector<TokenId>& tokens) {
    target_->fill(tokens, 0);
    target_->runner().forward_hidden();
    return {target_->runner().hidden(), target_->runner().hidden(std::ssize(tokens))};
  }

  std::shared_ptr<const ModelFiles> files_;
  std::unique_ptr<TestRunner> target_;
  KernelTable table_;
  ThreadPool pool_{2};
};

TEST_F(DraftHeads, TheTargetMatches) {
  const Expected expected = testing::read_expected(kHeads / "target");
  EXPECT_LT(testing::relative_error(target_->logits(expected.tokens), expected.logits), 1e-4);
}

TEST_F(DraftHeads, MedusaMatches) {
  const Expected expected = testing::read_expected(kHeads / "medusa");
  auto heads = MedusaHeads::load((kHeads / "medusa").string(), target_->model().spec(), table_, pool_);
  ASSERT_TRUE(heads.ok()) << heads.error().message;
  ASSERT_EQ((*heads)->heads(), 3);
  const std::vector<float> states = hidden(expected.tokens);
  const int64_t rows = std::ssize(expected.tokens), vocab = (*heads)->vocab();
  std::vector<float> logits(static_cast<size_t>(3 * rows * vocab));
  auto scratch = AlignedBuffer::allocate((*heads)->scratch_bytes(rows), "test");
  ASSERT_TRUE(scratch.ok());
  for (int64_t i = 0; i < 3; ++i)
    (*heads)->logits(i, states.data(), rows, scratch->data(), pool_, logits.data() + i * rows * vocab);
  EXPECT_LT(testing::relative_error(logits, expected.logits), 1e-4);
}

// All tokens but the first with the features before them, in chunks, and one more with the feature that was predicted.
class DraftPasses : public DraftHeads {
 protected:
  // Of a pass over tokens of one stream, which see all before them.
  Batch batch_of(const std::vector<TokenId>& tokens, int64_t first) const {
    Batch batch;
    const auto count = std::ssize(tokens);
    batch.spans.push_back({0, count, first, 0, std::ssize(blocks_)});
    batch.block_tables = blocks_;
    for (int64_t i = 0; i < count; ++i) batch.positions.push_back(static_cast<int32_t>(first + i));
    batch.tokens = tokens;
    return batch;
  }

  void start(const ArchSpec& spec) {
    auto kv = KvPool::create({find_format("f32"), 4, layer_states(spec)}, 16);
    ASSERT_TRUE(kv.ok());
    kv_.emplace(std::move(*kv));
    blocks_.clear();
    for (int i = 0; i < 16; ++i) blocks_.push_back(*kv_->allocate());
    auto context = ForwardContext::create(spec, table_, pool_, *kv_, {32, 32, 64});
    ASSERT_TRUE(context.ok());
    context_.emplace(std::move(*context));
  }

  std::optional<KvPool> kv_;
  std::optional<ForwardContext> context_;
  std::vector<BlockId> blocks_;
};

TEST_F(DraftPasses, KangarooMatches) {
  constexpr int64_t kExit = 2;
  const Expected expected = testing::read_expected(kHeads / "kangaroo");
  const auto adapter = ExitAdapter::load((kHeads / "kangaroo").string(), kExit, target_->model(), table_, pool_, 64);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  const int64_t width = (*adapter)->spec().width, count = std::ssize(expected.tokens);
  Streams streams;
  streams.layers = {kExit, 0, 1};
  target_->runner().hooks().add(streams);
  hidden(expected.tokens);
  target_->runner().hooks().remove(streams);
  std::vector<float> rows;
  for (int64_t t = 0; t < count; ++t)
    rows.insert(rows.end(), streams.rows.begin() + 3 * t * width, streams.rows.begin() + (3 * t + 1) * width);
  target_->fill(expected.tokens, 0);
  {
    const ThreadPool::Turn turn(target_->runner().threads());
    target_->runner().forward_first(kExit, turn);
  }
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), target_->runner().context().residual.as<float>()));
  for (const bool stored : {false, true}) {  // the first tokens' keys and values come from a pass without outputs
    for (const int64_t chunk : {count, int64_t{3}}) {
      SCOPED_TRACE(fmt::format("stored {}, chunks of {}", stored, chunk));
      start((*adapter)->spec());
      std::vector<float> logits;
      for (int64_t first = 0; first < count; first += chunk) {
        const int64_t end = std::min(count, first + chunk);
        const Batch batch = batch_of({expected.tokens.begin() + first, expected.tokens.begin() + end}, first);
        if (stored) (*adapter)->store(batch, rows.data() + first * width, *context_);
        (*adapter)->forward(batch, rows.data() + first * width, *context_);
        std::vector<int32_t> all;
        for (int64_t t = first; t < end; ++t) all.push_back(static_cast<int32_t>(t - first));
        (*adapter)->head(all, *context_);
        const float* made = context_->logits.as<float>();
        logits.insert(logits.end(), made, made + (end - first) * (*adapter)->spec().vocab);
      }
      EXPECT_LT(testing::relative_error(logits, expected.logits), 1e-4);
    }
  }
}

class DraftLayers : public DraftPasses, public ::testing::WithParamInterface<std::string> {
 protected:
  void run(const DraftLayer& layer, const std::vector<TokenId>& tokens, int64_t first, const float* features,
           std::vector<float>& logits) {
    Batch batch = batch_of(tokens, first);
    const auto count = std::ssize(tokens);
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(i));
    const KeySegment seen{1, first + count};
    add_visibility({.segments = {&seen, 1}}, batch);
    layer.forward(batch, features, scratch_->data(), *context_);
    layer.head(rows, *context_);
    const int64_t vocab = layer.target_vocab();
    for (int64_t i = 0; i < count; ++i) {
      std::vector<float> row(static_cast<size_t>(vocab), -1e30f);
      for (int64_t v = 0; v < layer.spec().vocab; ++v)
        row[static_cast<size_t>(layer.target_token(v))] = context_->logits.as<float>()[i * layer.spec().vocab + v];
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }

  bool predicts() const { return GetParam().starts_with("mtp"); }  // the layer is in the model's own files
  Result<std::unique_ptr<DraftLayer>> load_layer() {
    std::unique_ptr<DraftLayer> layer;
    if (predicts()) {
      MILLRACE_TRY(layer, MtpLayer::load(files_, target_->model(), table_, pool_, 64));
    } else {
      MILLRACE_TRY(layer, EagleLayer::load((kHeads / GetParam()).string(), target_->model(), table_, pool_, 64));
    }
    return layer;
  }

  void start(const DraftLayer& layer) {
    DraftPasses::start(layer.spec());
    scratch_ = AlignedBuffer::allocate(layer.scratch_bytes(32), "test");
    ASSERT_TRUE(scratch_.ok());
  }

  Result<AlignedBuffer> scratch_ = AlignedBuffer();
};

// Logits of draft tokens only: the others are -1e30 on both sides, which must not hide an error.
double error_of(std::vector<float> got, std::vector<float> want) {
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size() && i < got.size(); ++i) {
    if (want[i] > -1e29f) continue;
    EXPECT_EQ(got[i], -1e30f);
    got[i] = want[i] = 0;
  }
  return testing::relative_error(got, want);
}

TEST_P(DraftLayers, Matches) {
  const fs::path path = kHeads / GetParam();
  const Expected expected = testing::read_expected(path.extension() == ".gguf" ? path.parent_path() : path);
  if (predicts()) load(GetParam().c_str());
  const auto loaded = load_layer();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const DraftLayer& layer = **loaded;
  EXPECT_EQ(layer.joins(), GetParam() == "eagle3");
  const int64_t width = layer.width(), count = std::ssize(expected.tokens);
  Streams streams;
  streams.layers = layer.taps();
  target_->runner().hooks().add(streams);
  std::vector<float> features = hidden(expected.tokens);
  target_->runner().hooks().remove(streams);
  start(layer);
  if (layer.joins()) layer.join(streams.rows.data(), count, scratch_->data(), pool_, features.data());
  for (const int64_t chunk : {count, int64_t{3}}) {
    SCOPED_TRACE(chunk);
    std::vector<float> logits, last(static_cast<size_t>(width));
    for (int64_t first = 1; first < count; first += chunk) {
      const int64_t end = std::min(count, first + chunk);
      run(layer, {expected.tokens.begin() + first, expected.tokens.begin() + end}, first,
          features.data() + (first - 1) * width, logits);
      std::copy_n(context_->residual.as<float>() + (end - first - 1) * width, width, last.begin());
    }
    run(layer, expected.greedy, count, last.data(), logits);
    EXPECT_LT(error_of(logits, expected.logits), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftLayers,
                         ::testing::Values("eagle", "eagle3", "mtp", "mtp_qwen35", "mtp_qwen35/model.gguf",
                                           "mtp_qwen35moe", "mtp_qwen35moe/model.gguf"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '/' || c == '.'; }, '_');
                           return name;
                         });

class DraftHeadsRefused : public DraftHeads {
 protected:
  // A copy of a folder in which `from` in a file is replaced.
  std::string changed(const std::string& name, const std::string& file, const std::string& from,
                      const std::string& to) {
    const fs::path folder = fs::path(::testing::TempDir()) / ("millrace_heads_" + std::to_string(::getpid()));
    fs::remove_all(folder);
    fs::copy(kHeads / name, folder, fs::copy_options::recursive);
    std::string text = testing::read_file(folder / file);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::ofstream(folder / file, std::ios::binary) << text;
    folder_ = folder;
    return folder.string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void expect(const Result<void>& loaded, ErrorKind kind, const std::string& part) {
    ASSERT_FALSE(loaded.ok()) << part;
    EXPECT_EQ(loaded.error().kind, kind) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(part), std::string::npos) << loaded.error().message;
  }
  Result<void> medusa(const std::string& path) {
    MILLRACE_TRY(auto heads, MedusaHeads::load(path, target_->model().spec(), table_, pool_));
    return {};
  }
  Result<void> eagle(const std::string& path) {
    MILLRACE_TRY(auto layer, EagleLayer::load(path, target_->model(), table_, pool_, 64));
    return {};
  }
  fs::path folder_ = "/nonexistent";
};

TEST_F(DraftHeadsRefused, DamagedAndForeignFiles) {
  expect(medusa(""), ErrorKind::user, "model=PATH");
  expect(medusa("/nowhere"), ErrorKind::corrupt, "/nowhere: no such file or folder");
  expect(medusa(changed("medusa", "model.safetensors", "0.1.linear.weight", "0.7.linear.weight")), ErrorKind::corrupt,
         "0.1.linear.weight is missing");
  expect(medusa(changed("medusa", "config.json", "\"medusa_num_heads\": 2", "\"medusa_num_heads\": 5")),
         ErrorKind::corrupt, "3.0.linear.weight is missing");
  expect(eagle(changed("eagle", "config.json", "\"hidden_size\": 16", "\"hidden_size\": 32")), ErrorKind::user,
         "width 32");
  expect(eagle(changed("eagle", "config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2")),
         ErrorKind::unsupported, "2 draft layers");
  expect(eagle(changed("eagle", "model.safetensors", "\"fc.weight\"", "\"fd.weight\"")), ErrorKind::corrupt,
         "fc.weight is missing");
  expect(eagle(changed("eagle3", "model.safetensors", "\"d2t\"", "\"d3t\"")), ErrorKind::corrupt, "d2t is missing");
  expect(eagle(changed("eagle3", "config.json", "\"draft_vocab_size\": 96", "\"draft_vocab_size\": 95")),
         ErrorKind::corrupt, "lm_head.weight");
  const auto kangaroo = [&](const std::string& path, int64_t exit) -> Result<void> {
    MILLRACE_TRY(auto adapter, ExitAdapter::load(path, exit, target_->model(), table_, pool_, 64));
    return {};
  };
  expect(kangaroo("", 2), ErrorKind::user, "model=PATH");
  expect(kangaroo((kHeads / "kangaroo").string(), 7), ErrorKind::user, "exit: 7 layers before the adapter");
  expect(kangaroo(changed("kangaroo", "model.safetensors", "\"norm.weight\"", "\"form.weight\""), 2),
         ErrorKind::corrupt, "norm.weight is missing");
  expect(kangaroo(changed("kangaroo", "config.json", "\"hidden_size\": 16", "\"hidden_size\": 32"), 2), ErrorKind::user,
         "width 32");
  const auto none = MtpLayer::load(files_, target_->model(), table_, pool_, 64);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("behind the model's 7 layers"), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace millrace
