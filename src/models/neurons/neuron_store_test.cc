// Neuron files and the store over them: bundles are the model's rows and columns; any sequence of requests, deletions
// and failed reads gives these bytes or an error; damaged and foreign files are refused.
#include "models/neurons/neuron_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "models/neurons/neuron_tensors.h"
#include "models/neurons/neuron_test_file.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class NeuronStores : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("neuron_store_test." + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string model_of(const std::string& name) { return fmt::format("{}/{}", MILLRACE_SOURCE_DIR, name); }
  std::string neurons_of(const std::string& name, int64_t rank = 0) {
    const std::string path = (folder_ / fmt::format("{}.neurons", count_++)).string();
    testing::write_test_neurons(model_of(name), path, rank);
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  fs::path folder_;
  int count_ = 0;
};

const char* const kRelu = "tests/golden/llama_relu/model.gguf";
const char* const kLabRelu = "models/millrace-lab-relu-2m.gguf";

// A bundle as the model's tensors define it.
std::vector<uint8_t> bundle_of(const ModelFiles& files, const NeuronShape& shape, int64_t layer, int64_t neuron) {
  std::vector<uint8_t> out(static_cast<size_t>(shape.bundle_bytes()));
  const auto rows = [&](const char* matrix, int64_t at, int64_t bytes) {
    const Tensor& tensor = files.find(fmt::format("blk.{}.{}.weight", layer, matrix))->tensor;
    std::memcpy(out.data() + at, tensor.data + neuron * bytes, static_cast<size_t>(bytes));
  };
  rows("ffn_gate", 0, shape.gate_bytes());
  rows("ffn_up", shape.up_at(), shape.up_bytes());
  const Tensor& down = files.find(fmt::format("blk.{}.ffn_down.weight", layer))->tensor;
  const int64_t row = shape.down->row_bytes(shape.hidden);
  for (int64_t r = 0; r < shape.width; ++r) {
    const uint8_t* const from = down.data + r * row;
    uint8_t* const to = out.data() + shape.down_at();
    if (shape.down_has_scales())
      to[r] = from[neuron / 32 * 34 + 2 + neuron % 32];
    else
      std::memcpy(to + 4 * r, from + 4 * neuron, 4);
  }
  return out;
}

TEST_F(NeuronStores, GivesTheModelsRowsAndColumns) {
  for (const char* name : {kRelu, kLabRelu}) {
    auto file = NeuronFile::open(neurons_of(name, 4));
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto files = open_model_files(model_of(name));
    ASSERT_TRUE(files.ok());
    const NeuronShape& shape = file->shape();
    for (const bool gates : {true, false}) {
      for (const int64_t slots : {int64_t{0}, int64_t{7}, shape.hidden}) {
        NeuronStore::Options options{.window = 2, .slots = slots, .depth = 3, .gates = gates};
        options.hot.resize(static_cast<size_t>(shape.layers));
        options.hot[0] = {1, 5, 6};
        auto store = NeuronStore::create(*file, options);
        ASSERT_TRUE(store.ok()) << store.error().message;
        std::mt19937_64 random(5);
        std::vector<const uint8_t*> at;
        for (int step = 0; step < 40; ++step) {
          const auto layer = static_cast<int64_t>(random() % static_cast<uint64_t>(shape.layers));
          std::vector<int32_t> neurons;
          for (int32_t n = 0; n < shape.hidden; ++n)
            if (random() % 16 < static_cast<uint64_t>(step % 5)) neurons.push_back(n);
          const auto got = (*store)->acquire(layer, neurons, 1, at);
          ASSERT_TRUE(got.ok()) << got.error().message;
          ASSERT_EQ(at.size(), neurons.size());
          for (size_t i = 0; i < neurons.size(); ++i) {
            const std::vector<uint8_t> want = bundle_of(*files, shape, layer, neurons[i]);
            const auto skipped = static_cast<size_t>((*store)->skipped());
            ASSERT_EQ(std::memcmp(at[i], want.data() + skipped, want.size() - skipped), 0)
                << name << " layer " << layer << " neuron " << neurons[i];
          }
        }
        const WeightFigures& figures = (*store)->figures();
        EXPECT_GT(figures.misses, 0);
        EXPECT_EQ(figures.reads, figures.misses);
        EXPECT_EQ(figures.bytes_read % kNeuronPage, 0);
        EXPECT_EQ(figures.bytes_read - figures.wasted_bytes,
                  figures.misses * (shape.bundle_bytes() - (*store)->skipped()));
      }
    }
  }
}

// Neurons of the last `window` tokens are hits; others were deleted together.
TEST_F(NeuronStores, TheWindowSlides) {
  auto file = NeuronFile::open(neurons_of(kRelu));
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto store = NeuronStore::create(*file, {.window = 3, .slots = file->shape().hidden});
  ASSERT_TRUE(store.ok()) << store.error().message;
  std::vector<const uint8_t*> at;
  const auto misses = [&](std::vector<int32_t> neurons) {
    const int64_t before = (*store)->figures().misses;
    EXPECT_TRUE((*store)->acquire(0, neurons, 1, at).ok());
    return (*store)->figures().misses - before;
  };
  EXPECT_EQ(misses({0, 1, 2, 3}), 4);
  EXPECT_EQ(misses({4}), 1);
  EXPECT_EQ(misses({1, 5}), 1);
  EXPECT_EQ((*store)->held(0), 6);
  EXPECT_EQ(misses({6}), 1);  // 0, 2 and 3 leave; 4, 5 and 6 take their places
  EXPECT_EQ((*store)->held(0), 4);
  EXPECT_EQ(misses({1, 4, 5, 6}), 0) << "what a token uses does not leave";
  EXPECT_EQ(misses({0}), 1);
}

class FailingIo final : public BlockIo {
 public:
  FailingIo(std::unique_ptr<BlockIo> io, const bool& fails) : io_(std::move(io)), fails_(fails) {}
  std::string_view name() const override { return io_->name(); }
  int64_t depth() const override { return io_->depth(); }
  void start(const IoPiece& piece) override { io_->start(piece); }
  int64_t wait(std::span<IoDone> done) override {
    const int64_t count = io_->wait(done);
    for (int64_t i = 0; i < count; ++i) done[static_cast<size_t>(i)].ok &= !fails_;
    return count;
  }

 private:
  std::unique_ptr<BlockIo> io_;
  const bool& fails_;
};

TEST_F(NeuronStores, AFailedReadIsAnErrorAndTheNextMaySucceed) {
  auto file = NeuronFile::open(neurons_of(kLabRelu));
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto files = open_model_files(model_of(kLabRelu));
  bool fails = false;
  NeuronStore::Options options{.window = 5, .slots = 40};
  options.io = [&](int fd, int64_t depth) {
    return std::make_unique<FailingIo>(make_block_io(fd, depth, true), fails);
  };
  auto store = NeuronStore::create(*file, options);
  ASSERT_TRUE(store.ok()) << store.error().message;
  std::vector<const uint8_t*> at;
  const std::vector<int32_t> first = {3, 4, 5}, more = {3, 4, 90, 200, 201};
  ASSERT_TRUE((*store)->acquire(1, first, 1, at).ok());
  fails = true;
  const auto failed = (*store)->acquire(1, more, 1, at);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("cannot read neurons"), std::string::npos) << failed.error().message;
  fails = false;
  ASSERT_TRUE((*store)->acquire(1, more, 1, at).ok());
  for (size_t i = 0; i < more.size(); ++i) {
    const std::vector<uint8_t> want = bundle_of(*files, file->shape(), 1, more[i]);
    EXPECT_EQ(std::memcmp(at[i], want.data(), want.size()), 0) << more[i];
  }
  EXPECT_EQ((*store)->figures().failed, 1);
}

TEST_F(NeuronStores, DamageIsFound) {
  const std::string path = neurons_of(kLabRelu);
  auto file = NeuronFile::open(path);
  ASSERT_TRUE(file.ok());
  const int64_t at_byte = file->bundle_at(2, 17) + file->shape().down_at() + 3;
  std::string bytes = bytes_of(path);
  bytes[static_cast<size_t>(at_byte)] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  auto damaged = NeuronFile::open(path);
  ASSERT_TRUE(damaged.ok()) << "bundles are checked when they are read";
  auto store = NeuronStore::create(*damaged, {.window = 5, .slots = 40});
  ASSERT_TRUE(store.ok());
  std::vector<const uint8_t*> at;
  EXPECT_TRUE((*store)->acquire(2, std::vector<int32_t>{15, 16, 18}, 1, at).ok());
  const auto wrong = (*store)->acquire(2, std::vector<int32_t>{16, 17}, 1, at);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("neuron 17 of layer 2 is damaged"), std::string::npos) << wrong.error().message;
}

// Every byte of the header and of the tables is covered, and no size in them is believed.
TEST_F(NeuronStores, RefusesOtherBytes) {
  const std::string path = neurons_of(kRelu, 2), other = (folder_ / "other").string();
  const std::string good = bytes_of(path);
  const auto opened = [&](const std::string& bytes) {
    std::ofstream(other, std::ios::binary) << bytes;
    return NeuronFile::open(other).ok();
  };
  EXPECT_TRUE(opened(good));
  std::mt19937_64 random(1);
  for (size_t at = 0; at < 128; ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
    EXPECT_FALSE(opened(bytes)) << at;
  }
  for (size_t at = 4096; at < 4096 + 600; at += 7) {
    std::string bytes = good;
    bytes[at] ^= 4;
    EXPECT_FALSE(opened(bytes)) << at;
  }
  for (size_t size : {size_t{0}, size_t{5}, size_t{128}, size_t{4096}, good.size() - 1})
    EXPECT_FALSE(opened(good.substr(0, size))) << size;
  EXPECT_FALSE(opened(good + "x"));
  EXPECT_FALSE(NeuronFile::open((folder_ / "none").string()).ok());
}

TEST_F(NeuronStores, RefusesAnotherModel) {
  auto file = NeuronFile::open(neurons_of(kRelu));
  ASSERT_TRUE(file.ok());
  const auto message = [&](const std::string& path) {
    auto files = open_model_files(path);
    const auto checked = file->check_model(*files, *read_arch_spec(*files));
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(message(model_of(kRelu)), "");
  EXPECT_NE(message(model_of(kLabRelu)).find("was made from another model"), std::string::npos);
  EXPECT_NE(message(model_of("tests/golden/llama/model.gguf")).find("millrace compress --pass relufy"),
            std::string::npos);
  // A model of the same sizes with other weights.
  std::string bytes = bytes_of(model_of(kRelu));
  bytes[bytes.find("GGUF") + 33312 + 40] ^= 1;  // in blk.0.ffn_gate
  const std::string other = (folder_ / "other.gguf").string();
  std::ofstream(other, std::ios::binary) << bytes;
  EXPECT_NE(message(other).find("was made from another model"), std::string::npos);
}

}  // namespace
}  // namespace millrace
