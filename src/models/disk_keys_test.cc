// Keys in a file: the layers that are there, their bytes after they left memory, and the pools that are refused.
#include "models/disk_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "attention/full.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

KvLayout layout_of(int64_t layers, int64_t state_layers = 0) {
  KvLayout layout{find_format("f16"), 16, {}};
  for (int64_t i = 0; i < layers; ++i) {
    if (i < state_layers)
      layout.layers.push_back({.state_values = 64});
    else
      layout.layers.push_back({.kv_heads = 2, .head_dim = 64});
  }
  return layout;
}

TEST(DiskKeys, SpreadsTheLayersThatHaveKeys) {
  EXPECT_EQ(disk_key_layers(layout_of(4), 0), std::vector<int64_t>());
  EXPECT_EQ(disk_key_layers(layout_of(4), 0.5), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(disk_key_layers(layout_of(4), 1), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(disk_key_layers(layout_of(5, 2), 1), (std::vector<int64_t>{2, 3, 4}));
  // Two layers of the file are in memory at a time.
  EXPECT_DOUBLE_EQ(key_memory_share(layout_of(8), 0), 1);
  EXPECT_DOUBLE_EQ(key_memory_share(layout_of(8), 0.5), 6.0 / 8);
  EXPECT_DOUBLE_EQ(key_memory_share(layout_of(8), 1), 2.0 / 8);
  EXPECT_DOUBLE_EQ(key_memory_share(layout_of(2), 1), 1);
}

// Every byte of every layer is written, all layers attend in turn, and the bytes are still there.
TEST(DiskKeys, KeepsBytesThatLeftMemory) {
  const std::string folder = fs::temp_directory_path().string();
  constexpr int64_t kLayers = 6, kBlocks = 64;
  auto kv = KvPool::create(layout_of(kLayers), kBlocks);
  ASSERT_TRUE(kv.ok()) << kv.error().message;
  auto keys = DiskKeys::create(*kv, 0.5, folder);
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ((*keys)->layers(), 3);
  const auto value = [](int64_t layer, int64_t block, int64_t kind, int64_t head) {
    return static_cast<uint8_t>(layer * 61 + block * 7 + kind * 3 + head + 1);
  };
  const auto each = [&](const auto& use) {
    for (int64_t layer = 0; layer < kLayers; ++layer)
      for (BlockId block = 0; block < kBlocks; ++block)
        for (int64_t kind = 0; kind < 2; ++kind)
          for (int64_t head = 0; head < 2; ++head)
            use(kv->plane(layer, block, kind, head), kv->plane_tile_bytes(layer, kind),
                value(layer, block, kind, head));
  };
  each([](uint8_t* rows, int64_t bytes, uint8_t with) { std::fill_n(rows, bytes, with); });
  Batch batch;
  for (BlockId block = 0; block < kBlocks; ++block) batch.block_tables.push_back(block);
  const KernelTable kernels = make_kernel_table(*select_isa());
  for (int pass = 0; pass < 3; ++pass)
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const AttentionLayer attention{.layer = layer, .heads = 2, .kv_heads = 2, .head_dim = 64};
      (*keys)->queries({.layer = attention, .batch = batch, .kernels = kernels, .kv = *kv});
    }
  int64_t wrong = 0;
  each([&](const uint8_t* rows, int64_t bytes, uint8_t with) {
    wrong += std::count_if(rows, rows + bytes, [&](uint8_t one) { return one != with; });
  });
  EXPECT_EQ(wrong, 0);
}

TEST(DiskKeys, RefusesPoolsThatItCannotMap) {
  const std::string folder = fs::temp_directory_path().string();
  KvLayout layout = layout_of(2);
  layout.block_tokens = layout.page_block_tokens(sysconf(_SC_PAGESIZE));
  auto kv = KvPool::create(layout, 8, {.mode = KvPoolMode::virtual_ranges, .longest = 2 * layout.block_tokens});
  ASSERT_TRUE(kv.ok()) << kv.error().message;
  const auto keys = DiskKeys::create(*kv, 1, folder);
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().kind, ErrorKind::unsupported);
  EXPECT_NE(keys.error().message.find("keys=memory"), std::string::npos);
  auto plain = KvPool::create(layout_of(2), 8);
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(DiskKeys::create(*plain, 1, "/nonexistent/folder").ok());
  EXPECT_TRUE(DiskKeys::create(*plain, 0, "/nonexistent/folder").ok());
}

}  // namespace
}  // namespace millrace
