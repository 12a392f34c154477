#include "kv/tiers/layer_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "contains.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int64_t kStagedLayerCount = 5;

// Keys and values of different sizes, heads of whole and of half pages, a layer without keys.
KvLayout layer_file_layout() {
  KvLayout layout{.format = find_format("f32"), .block_tokens = 16};
  for (int64_t i = 0; i < kStagedLayerCount; ++i) layout.layers.push_back({.kv_heads = 2, .head_dim = 32});
  layout.layers[1] = {.kv_heads = 3, .head_dim = 64};
  layout.layers[3] = {};
  layout.value_format = find_format("f16");
  return layout;
}

KvPool layer_file_pool(int64_t blocks, int64_t resident) {
  auto pool = KvPool::create(layer_file_layout(), blocks, {.resident = resident});
  EXPECT_TRUE(pool.ok()) << (pool.ok() ? "" : pool.error().message);
  return std::move(*pool);
}

template <typename Use>
void for_staged_tiles(KvPool& pool, int64_t layer, BlockId block, const Use& use) {
  for (int64_t kind = 0; kind < pool.planes(layer); ++kind)
    for (int64_t head = 0; head < pool.layout().layers[static_cast<size_t>(layer)].kv_heads; ++head)
      use(pool.plane(layer, block, kind, head), static_cast<size_t>(pool.plane_tile_bytes(layer, kind)),
          static_cast<int>(kind * 31 + head * 7));
}
void fill_staged(KvPool& pool, int64_t layer, BlockId block, int seed) {
  for_staged_tiles(pool, layer, block, [&](uint8_t* tile, size_t bytes, int place) {
    for (size_t i = 0; i < bytes; ++i)
      tile[i] = static_cast<uint8_t>(static_cast<size_t>(seed + place) + i * 3 + i / 256);
  });
}
bool holds_staged(KvPool& pool, int64_t layer, BlockId block, int seed) {
  bool same = true;
  for_staged_tiles(pool, layer, block, [&](const uint8_t* tile, size_t bytes, int place) {
    for (size_t i = 0; i < bytes; ++i)
      same &= tile[i] == static_cast<uint8_t>(static_cast<size_t>(seed + place) + i * 3 + i / 256);
  });
  return same;
}
int staged_seed(int64_t layer, BlockId block) { return static_cast<int>(layer * 50 + block * 13 + 1); }

TEST(StagedLayers, LayersOfOneTurnShareTheMemoryOfBlocksThatAreNotResident) {
  KvPool pool = layer_file_pool(8, 4);
  EXPECT_EQ(pool.staged().turns, (std::vector<int8_t>{0, 1, 0, -1, 1}));
  EXPECT_EQ(pool.resident_blocks(), 4);
  for (const BlockId block : {0, 3, 4, 7}) {
    fill_staged(pool, 0, block, 1);
    fill_staged(pool, 1, block, 2);
    EXPECT_TRUE(holds_staged(pool, 0, block, 1)) << block;
    fill_staged(pool, 2, block, 3);
    EXPECT_TRUE(holds_staged(pool, 1, block, 2)) << block;
    EXPECT_TRUE(holds_staged(pool, 2, block, 3)) << block;
    EXPECT_EQ(holds_staged(pool, 0, block, 1), block < 4) << block;
  }
}

TEST(StagedLayers, BytesAreThoseOfTheResidentBlocksAndOfTwoLayers) {
  const KvLayout layout = layer_file_layout();
  int64_t all = 0, largest = 0;
  for (const KvLayer& layer : layout.layers) {
    all += layout.block_bytes(layer);
    largest = std::max(largest, layout.block_bytes(layer));
  }
  EXPECT_EQ(staged_bytes(layout, 8, 4), 4 * all + 2 * 4 * largest);
  EXPECT_EQ(staged_bytes(layout, 8, kAllResident), 8 * all);
  EXPECT_EQ(layer_file_pool(8, 4).bytes(), staged_bytes(layout, 8, 4));
  // Tiles of 2048 bytes of keys and 1024 of values, and of 4096 and 2048.
  EXPECT_EQ(staged_multiple(layout, 4096), 4);
}

TEST(StagedLayers, BlocksThatAreNoWholePagesAreRefused) {
  EXPECT_FALSE(KvPool::create(layer_file_layout(), 10, {.resident = 4}).ok());
  EXPECT_FALSE(KvPool::create(layer_file_layout(), 8, {.resident = 3}).ok());
  EXPECT_FALSE(KvPool::create(layer_file_layout(), 8, {.mode = KvPoolMode::virtual_ranges, .resident = 4}).ok());
}

class LayerFileIo : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  std::unique_ptr<LayerFile> open(KvPool& pool) {
    auto file = LayerFile::create(
        pool, {.folder = ::testing::TempDir(), .uring = std::get<0>(GetParam()), .direct = std::get<1>(GetParam())});
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    return std::move(*file);
  }
  static std::vector<BlockId> take_failed(LayerFile& file) {
    std::vector<BlockId> failed;
    file.take_failed(failed);
    std::ranges::sort(failed);
    return failed;
  }
  // Writes all blocks of all layers, in turn.
  static void write_all(KvPool& pool, LayerFile& file) {
    for (const int64_t layer : {0, 1, 2, 4}) {
      std::vector<BlockId> blocks;
      for (auto block = static_cast<BlockId>(pool.resident_blocks()); block < pool.ids(); ++block) {
        fill_staged(pool, layer, block, staged_seed(layer, block));
        blocks.push_back(block);
      }
      file.wait(file.write(layer, blocks));
    }
  }
};

TEST_P(LayerFileIo, LayersComeBackInTheMemoryOfTheirTurn) {
  KvPool pool = layer_file_pool(400, 4);
  const auto file = open(pool);
  write_all(pool, *file);
  std::vector<BlockId> all;
  for (BlockId block = 4; block < 400; ++block) all.push_back(block);
  const std::vector<BlockId> some = {4, 5, 6, 9, 100, 101, 399};
  for (const int64_t layer : {1, 0, 4, 2, 1}) {
    for (const auto& blocks : {some, all}) {
      const LayerFile::Transfer transfer = file->read(layer, blocks);
      file->wait(transfer);
      EXPECT_TRUE(file->is_done(transfer));
      for (const BlockId block : blocks)
        ASSERT_TRUE(holds_staged(pool, layer, block, staged_seed(layer, block))) << layer << ", " << block;
    }
  }
  EXPECT_TRUE(take_failed(*file).empty());
  EXPECT_EQ(file->stats().io, std::get<0>(GetParam()) ? file->stats().io : "pread");
  EXPECT_GT(file->stats().read_bytes, 5 * 396 * 4096);
  EXPECT_EQ(file->stats().written_bytes, file->stats().read_bytes / (5 * (396 + 7)) * 4 * 396);
}

// A write takes its bytes before a later read overwrites the memory, and a read sees the write before it.
TEST_P(LayerFileIo, TransfersAreInTheirOrder) {
  KvPool pool = layer_file_pool(16, 4);
  const auto file = open(pool);
  write_all(pool, *file);
  const std::vector<BlockId> blocks = {5, 6, 11};
  for (int round = 0; round < 50; ++round) {
    for (const BlockId block : blocks) fill_staged(pool, 0, block, round);
    file->write(0, blocks);
    const LayerFile::Transfer other = file->read(2, blocks);
    file->wait(other);
    for (const BlockId block : blocks) ASSERT_TRUE(holds_staged(pool, 2, block, staged_seed(2, block)));
    file->wait(file->read(0, blocks));
    for (const BlockId block : blocks) ASSERT_TRUE(holds_staged(pool, 0, block, round)) << round;
  }
  EXPECT_TRUE(take_failed(*file).empty());
}

TEST_P(LayerFileIo, CopiesBlocksOfAllLayers) {
  KvPool pool = layer_file_pool(16, 4);
  const auto file = open(pool);
  write_all(pool, *file);
  for (const int64_t layer : {0, 1, 2, 4}) fill_staged(pool, layer, 3, staged_seed(layer, 3));
  file->copy(3, 9);    // resident to other
  file->copy(12, 2);   // other to resident
  file->copy(10, 11);  // other to other
  file->copy(3, 1);
  for (const int64_t layer : {0, 1, 2, 4}) {
    EXPECT_TRUE(holds_staged(pool, layer, 2, staged_seed(layer, 12)));
    EXPECT_TRUE(holds_staged(pool, layer, 1, staged_seed(layer, 3)));
    file->wait(file->read(layer, std::vector<BlockId>{9, 11}));
    EXPECT_TRUE(holds_staged(pool, layer, 9, staged_seed(layer, 3)));
    EXPECT_TRUE(holds_staged(pool, layer, 11, staged_seed(layer, 10)));
  }
  EXPECT_TRUE(take_failed(*file).empty());
}

int open_layer_file() {
  DIR* folder = ::opendir("/proc/self/fd");
  int found = -1;
  while (const dirent* entry = folder ? ::readdir(folder) : nullptr) {
    char target[4096] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0 && std::strstr(target, "millrace-keys-"))
      found = ::open(link.c_str(), O_RDWR | O_CLOEXEC);
  }
  if (folder) ::closedir(folder);
  return found;
}

TEST_P(LayerFileIo, DamagedAndMissingBlocksAreNamed) {
  KvPool pool = layer_file_pool(16, 4);
  const auto file = open(pool);
  const std::vector<BlockId> blocks = {4, 5, 6, 7};
  file->wait(file->read(0, blocks));
  EXPECT_EQ(take_failed(*file), blocks);  // never written
  EXPECT_EQ(file->stats().failed_blocks, 4);
  write_all(pool, *file);
  file->wait(file->read(0, blocks));  // the writes are on their way to the file before a read
  EXPECT_TRUE(take_failed(*file).empty());

  const int fd = open_layer_file();
  if (fd < 0) GTEST_SKIP() << "needs /proc";
  struct stat info;
  ASSERT_EQ(::fstat(fd, &info), 0);
  const int64_t record = info.st_size / (4 * 12);
  ASSERT_EQ(record % 4096, 0);
  uint8_t byte = 0;
  const int64_t at = 2 * record + 17;  // layer 0, block 6
  ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
  byte ^= 0x10;
  ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
  ASSERT_EQ(::fsync(fd), 0);
  fill_staged(pool, 0, 6, 99);
  file->wait(file->read(0, blocks));
  EXPECT_EQ(take_failed(*file), (std::vector<BlockId>{6}));
  EXPECT_TRUE(holds_staged(pool, 0, 5, staged_seed(0, 5)));
  EXPECT_TRUE(holds_staged(pool, 0, 6, 99)) << "a damaged record must not get into the pool";
  ASSERT_EQ(::ftruncate(fd, 0), 0);
  ::close(fd);
  file->wait(file->read(4, blocks));
  EXPECT_EQ(take_failed(*file), blocks);
}

INSTANTIATE_TEST_SUITE_P(All, LayerFileIo, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "uring" : "pread") +
                                  (std::get<1>(info.param) ? "_direct" : "_buffered");
                         });

TEST(LayerFile, SaysWhichFolderTakesNoFile) {
  KvPool pool = layer_file_pool(8, 4);
  const auto file = LayerFile::create(pool, {.folder = "/nonexistent/folder"});
  ASSERT_FALSE(file.ok());
  EXPECT_CONTAINS(file.error().message, "no file can be created in /nonexistent/folder");
}

}  // namespace
}  // namespace millrace
