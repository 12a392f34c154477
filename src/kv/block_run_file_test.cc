// Runs of blocks in files: what was exported is imported, byte for byte, into other blocks of another pool, all layers
// or some; every damaged byte and every length is refused.
#include "kv/block_run_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "kv/tiers/block_runs.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

KvLayout run_layout(const char* format = "f16", int64_t block_tokens = 4) {
  return {find_format(format), block_tokens, {{2, 32}, {1, 64}, {3, 32}}};
}

class BlockRunFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::temp_directory_path() / fmt::format("block_run.{}", getpid())).string();
    pool_.emplace(KvPool::create(run_layout(), 12).value());
    for (int i = 0; i < 5; ++i) blocks_.push_back(*pool_->allocate());
    std::swap(blocks_[1], blocks_[3]);
    uint8_t next = 1;
    for (int64_t layer = 0; layer < 3; ++layer)
      for (BlockId block : blocks_)
        each_run_of(*pool_, layer, block, [&](uint8_t* row, size_t bytes) {
          for (size_t i = 0; i < bytes; ++i) row[i] = next = static_cast<uint8_t>(next * 7 + 3);
        });
    run_ = {"model x\n", {}, 0, 3};
    for (TokenId i = 0; i < 20; ++i) run_.tokens.push_back(i * 3);
  }
  void TearDown() override { fs::remove(path_); }

  std::vector<uint8_t> bytes(KvPool& pool, int64_t layer, BlockId block) {
    std::vector<uint8_t> out(static_cast<size_t>(2 * pool.layout().layers[static_cast<size_t>(layer)].kv_heads *
                                                 pool.layout().block_tokens * pool.row_bytes(layer)));
    copy_out(pool, layer, block, out.data());
    return out;
  }
  std::string file() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string failure(KvPool& pool, const std::string& identity = "model x\n") {
    auto opened = BlockRunFile::open(path_, pool, identity);
    auto done = opened.ok() ? opened->read(pool, blocks_) : Result<void>(opened.error());
    std::string message = done.ok() ? "" : done.error().message;
    if (message.starts_with(path_)) message.erase(0, path_.size());
    return message;
  }

  std::string path_;
  std::optional<KvPool> pool_;
  std::vector<BlockId> blocks_;
  BlockRun run_;
};

TEST_F(BlockRunFiles, ImportedIsExported) {
  for (const auto& [begin, end] : {std::pair(0, 3), {1, 2}, {0, 1}, {1, 3}}) {
    run_.layer_begin = begin;
    run_.layer_end = end;
    ASSERT_TRUE(export_blocks(*pool_, blocks_, run_, path_).ok());
    auto other = KvPool::create(run_layout(), 9);
    std::vector<BlockId> to;
    for (int i = 0; i < 9; ++i) to.push_back(*other->allocate());
    to = {to[7], to[2], to[8], to[0], to[5]};
    auto opened = BlockRunFile::open(path_, *other, "model x\n");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->run().tokens, run_.tokens);
    EXPECT_EQ(opened->blocks(), 5);
    ASSERT_TRUE(opened->read(*other, to).ok());
    for (int64_t layer = 0; layer < 3; ++layer)
      for (size_t i = 0; i < to.size(); ++i) {
        const bool there = layer >= begin && layer < end;
        EXPECT_EQ(bytes(*other, layer, to[i]) == bytes(*pool_, layer, blocks_[i]), there) << layer << " " << i;
      }
    // Only the first ones.
    auto few = KvPool::create(run_layout(), 3);
    const std::vector<BlockId> two = {*few->allocate(), *few->allocate()};
    ASSERT_TRUE(opened->read(*few, two).ok());
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(bytes(*few, begin, two[i]), bytes(*pool_, begin, blocks_[i]));
  }
  EXPECT_EQ(std::ranges::count_if(fs::directory_iterator(fs::path(path_).parent_path()),
                                  [&](const auto& one) { return one.path().string().starts_with(path_ + "."); }),
            0);
}

TEST_F(BlockRunFiles, EveryDamagedByteAndEveryLengthIsRefused) {
  ASSERT_TRUE(export_blocks(*pool_, blocks_, run_, path_).ok());
  const std::string good = file();
  EXPECT_EQ(failure(*pool_), "");
  for (size_t at = 0; at < good.size(); at += at < 400 ? 1 : 97) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write(damaged);
    EXPECT_NE(failure(*pool_), "") << at;
  }
  for (size_t length = 1; length < good.size(); length += length < 300 ? 1 : 211) {
    write(good.substr(0, length));
    EXPECT_NE(failure(*pool_), "") << length;
  }
  write(good + "x");
  EXPECT_EQ(failure(*pool_), fmt::format(": has {} bytes, which do not agree with its header", good.size() + 1));
  std::string damaged = good;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write(damaged);
  EXPECT_EQ(failure(*pool_), ": the keys and values are damaged");
  damaged = good;
  damaged[70] = static_cast<char>(damaged[70] ^ 1);
  write(damaged);
  EXPECT_EQ(failure(*pool_), ": the header is damaged");
  write("no");
  EXPECT_EQ(failure(*pool_), ": has only 2 bytes, is not a file of keys and values");
  write(std::string(100, 'x'));
  EXPECT_EQ(failure(*pool_), ": is not a file of keys and values");
  damaged = good;
  damaged[8] = 2;
  write(damaged);
  EXPECT_EQ(failure(*pool_), ": has version 2, this build uses 1");
}

TEST_F(BlockRunFiles, OtherModelsAndLayoutsAreRefused) {
  ASSERT_TRUE(export_blocks(*pool_, blocks_, run_, path_).ok());
  EXPECT_EQ(failure(*pool_, "model y\n"), ": is of another model or machine: it has 'model x', here is 'model y'");
  auto other = KvPool::create(run_layout("f32"), 12);
  EXPECT_EQ(failure(*other),
            ": has another layout of keys and values: it has 'f16, blocks of 4 tokens, layers 0 to 3 of 3', here is "
            "'f32, blocks of 4 tokens, layers 0 to 3 of 3'");
  other = KvPool::create(run_layout("f16", 8), 12);
  EXPECT_NE(failure(*other), "");
  auto fewer = KvPool::create({find_format("f16"), 4, {{2, 32}, {1, 64}}}, 12);
  EXPECT_NE(failure(*fewer), "");
}

// Equal bytes of layers with other heads: their names in the file differ.
TEST_F(BlockRunFiles, HeadsOfAnotherShapeAreNamed) {
  ASSERT_TRUE(export_blocks(*pool_, blocks_, run_, path_).ok());
  KvPool other = KvPool::create({find_format("f16"), 4, {{2, 32}, {2, 32}, {3, 32}}}, 12).value();
  const std::string message = failure(other);
  EXPECT_NE(message.find("layer 1: 1 heads of 64, 128 bytes a row"), std::string::npos) << message;
  EXPECT_NE(message.find("layer 1: 2 heads of 32, 64 bytes a row"), std::string::npos) << message;
}

// The state of the recurrent layers is behind the blocks.
TEST_F(BlockRunFiles, HoldTheStateOfRecurrentLayers) {
  KvPool pool = KvPool::create({find_format("f16"), 4, {{2, 32}, {.state_values = 8}}}, 12, {.states = 1}).value();
  BlockRun run = run_;
  run.layer_begin = 0;
  run.layer_end = 1;
  const auto refusal = [&] { return export_blocks(pool, blocks_, run, path_).error().message; };
  EXPECT_EQ(refusal(), "keys and values: of a model with recurrent layers only all layers can be saved");
  run.layer_end = 2;
  EXPECT_EQ(refusal(), "keys and values: the states of the recurrent layers have 64 bytes, got 0");
  for (int i = 0; i < 16; ++i) run.state.push_back(static_cast<float>(i));
  ASSERT_TRUE(export_blocks(pool, blocks_, run, path_).ok());
  auto file = BlockRunFile::open(path_, pool, run.identity);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->read(pool, blocks_).ok());
  EXPECT_EQ(file->run().state, run.state);
  KvPool other = KvPool::create({find_format("f16"), 4, {{2, 32}, {.state_values = 9}}}, 12, {.states = 1}).value();
  const auto misfit = BlockRunFile::open(path_, other, run.identity);
  ASSERT_FALSE(misfit.ok());
  EXPECT_NE(misfit.error().message.find("layer 1: a state of 8 values"), std::string::npos) << misfit.error().message;
}

TEST_F(BlockRunFiles, SayWhatIsWrong) {
  const auto refusal = [&](const BlockRun& run) {
    auto done = export_blocks(*pool_, blocks_, run, path_);
    return done.ok() ? "" : done.error().message;
  };
  BlockRun run = run_;
  run.tokens.pop_back();
  EXPECT_EQ(refusal(run), "keys and values: 19 tokens are not 5 whole blocks of 4");
  run = run_;
  run.layer_end = 4;
  EXPECT_EQ(refusal(run), "keys and values: layers 0 to 4 are not a range of the model's 3");
  run.layer_begin = run.layer_end = 2;
  EXPECT_EQ(refusal(run), "keys and values: layers 2 to 2 are not a range of the model's 3");
  path_ = "/no such folder/file";
  EXPECT_EQ(refusal(run_), "/no such folder/file: cannot write keys and values: No such file or directory");
}

}  // namespace
}  // namespace millrace
