// A prefix store's file whose blocks are written by the test, and a pool to read them into.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv/tiers/block_runs.h"
#include "kv/tiers/prefix_store.h"
#include "kv/tiers/store_reader.h"
#include "kv/tiers/system_calls_test.h"

namespace millrace {

inline constexpr uint8_t kUntouched = 0xee;

class ReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/store_reader_XXXXXX";
    ::close(::mkstemp(path_.data()));
  }
  void TearDown() override {
    reader_.reset();
    file_.reset();
    ::unlink(path_.c_str());
  }
  // A layer of dim values has 16 * dim bytes.
  void open(const std::vector<int64_t>& dims, int64_t slots, StoreOrder order, bool uring) {
    reader_.reset();
    file_.reset();
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    KvLayout layout{find_format("f16"), 4, {}};
    for (int64_t dim : dims) layout.layers.push_back({1, dim});
    const StoreGeometry one = *StoreGeometry::create(layout, int64_t{1} << 40, order);
    calls_.allocate = [] { return EOPNOTSUPP; };  // holes where the test writes nothing
    auto file =
        StoreFile::open({path_, 4096 + slots * (one.record_bytes + one.slot_bytes), "test", false, 4, order}, layout);
    ASSERT_TRUE(file.ok()) << file.error().message;
    file_.emplace(std::move(*file));
    ASSERT_EQ(g().capacity, slots);
    pool_ = std::make_unique<KvPool>(std::move(*KvPool::create(layout, kPoolBlocks)));
    for (BlockId block = 0; block < kPoolBlocks; ++block)
      for (int64_t layer = 0; layer < g().layers(); ++layer)
        copy_in(*pool_, layer, block, std::vector<uint8_t>(bytes_of(layer), kUntouched).data());
    reader_ = std::make_unique<StoreReader>(*file_, *pool_, uring);
  }
  const StoreGeometry& g() const { return file_->geometry(); }
  size_t bytes_of(int64_t layer) const { return static_cast<size_t>(g().part_bytes[static_cast<size_t>(layer)]); }
  std::vector<uint8_t> content(int64_t slot, int64_t layer) const {
    std::vector<uint8_t> out(bytes_of(layer));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(1 + (i * 31 + i / 256 * 7 + static_cast<size_t>(slot * 57 + layer * 101)) % 251);
    return out;
  }
  // Writes the slot, and returns the block that a load of it needs.
  StoreLoad::Block written(int64_t slot, BlockId into, float importance = 0) {
    StoreLoad::Block block{slot, {static_cast<uint64_t>(slot) + 1, 7}, {}, into, importance};
    for (int64_t layer = 0; layer < g().layers(); ++layer) {
      std::vector<uint8_t> bytes = content(slot, layer);
      block.sums.push_back(part_sum(block.key, layer, bytes));
      EXPECT_TRUE(move_bytes(file_->fd(), {true, g().place(slot, layer), bytes.data(), std::ssize(bytes), 0}));
    }
    return block;
  }
  void damage(int64_t slot, int64_t layer) {
    uint8_t byte = static_cast<uint8_t>(content(slot, layer).back() ^ 1);
    ASSERT_TRUE(move_bytes(
        file_->fd(), {true, g().place(slot, layer) + g().part_bytes[static_cast<size_t>(layer)] - 1, &byte, 1, 0}));
  }
  std::shared_ptr<StoreLoad> load(std::vector<StoreLoad::Block> blocks, bool wait = true) {
    auto out = std::make_shared<StoreLoad>();
    out->blocks = std::move(blocks);
    reader_->push(out);
    if (wait)
      reader_->wait_layer(*out, g().layers(),
                          PrefixStore::kNoDeadline);  // beyond the last layer: waits for the whole load
    return out;
  }
  // Contents of a pool block, a letter per layer: w the slot's bytes, 0 zeros, - unchanged.
  std::string look(BlockId block, int64_t slot) {
    std::string out;
    for (int64_t layer = 0; layer < g().layers(); ++layer) {
      std::vector<uint8_t> bytes(bytes_of(layer));
      copy_out(*pool_, layer, block, bytes.data());
      const auto all = [&](uint8_t value) {
        return std::ranges::all_of(bytes, [&](uint8_t byte) { return byte == value; });
      };
      out += bytes == content(slot, layer) ? 'w' : all(0) ? '0' : all(kUntouched) ? '-' : '?';
    }
    return out;
  }

  static constexpr BlockId kPoolBlocks = 10;
  SystemCalls calls_;
  std::string path_;
  std::optional<StoreFile> file_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<StoreReader> reader_;
};

}  // namespace millrace
