#include "kv/tiers/ssd_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/philox.h"
#include "kv/tiers/block_runs.h"
#include "kv/tiers/store_format.h"

namespace millrace {
namespace {

constexpr int64_t kStoreBlock = 4, kLayers = 3;
constexpr int64_t kSlotFile = 4 * 4096;  // one block: its record and three parts

KvPool store_pool(int64_t blocks = 8) {
  auto pool = KvPool::create({find_format("f16"), kStoreBlock, {{2, 8}, {1, 16}, {1, 32}}}, blocks);
  EXPECT_TRUE(pool.ok());
  return std::move(*pool);
}

std::vector<TokenId> prompt(int64_t seed, int64_t blocks) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < blocks * kStoreBlock; ++i) tokens.push_back(static_cast<TokenId>(seed * 1000 + i));
  return tokens;
}

// The expected contents of the block with that key.
std::vector<uint8_t> content(const PrefixKey& key, int64_t layer, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  for (size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<uint8_t>(philox4x32(key.low, static_cast<uint64_t>(layer), i / 4)[0] >> (i % 4 * 8));
  return out;
}

size_t part_bytes(const KvPool& pool, int64_t layer) {
  return static_cast<size_t>(2 * pool.layout().layers[static_cast<size_t>(layer)].kv_heads * kStoreBlock *
                             pool.row_bytes(layer));
}

void fill(KvPool& pool, BlockId block, const PrefixKey& key) {
  for (int64_t layer = 0; layer < kLayers; ++layer)
    copy_in(pool, layer, block, content(key, layer, part_bytes(pool, layer)).data());
}

bool holds(KvPool& pool, BlockId block, const PrefixKey& key) {
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<uint8_t> bytes(part_bytes(pool, layer));
    copy_out(pool, layer, block, bytes.data());
    if (bytes != content(key, layer, bytes.size())) return false;
  }
  return true;
}

class SsdStore : public ::testing::TestWithParam<StoreOrder> {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kv_store_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/store";
  }
  void TearDown() override {
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }

  std::unique_ptr<PrefixStore> open(KvPool& pool, int64_t blocks = 16, SsdStoreOptions options = {}) {
    options.path = path_;
    options.bytes = 4096 + blocks * kSlotFile;
    options.order = GetParam();
    if (options.identity_text.empty()) options.identity_text = "a model";
    auto store = make_ssd_store(pool, options);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(*store) : nullptr;
  }

  // Stores a prompt's blocks, the deepest first, as the prefix index evicts them.
  static void put(PrefixStore& store, KvPool& pool, std::span<const ChainLink> chain) {
    for (size_t i = chain.size(); i-- > 0;) {
      fill(pool, 0, chain[i].key);
      store.put(chain[i], 0, true);
      fill(pool, 0, PrefixKey{1, 2});  // the bytes were copied
    }
    store.flush();
  }

  // How many of the chain's blocks are loaded intact; each must equal what was stored.
  static int64_t load(PrefixStore& store, KvPool& pool, std::span<const ChainLink> chain) {
    const int64_t found = store.find(chain);
    if (found == 0) return 0;
    std::vector<BlockId> into;
    for (int64_t i = 0; i < found; ++i) into.push_back(static_cast<BlockId>(pool.total_blocks() - 1 - i));
    for (BlockId block : into) fill(pool, block, PrefixKey{3, 4});
    const TierTicket ticket = store.load(chain.first(static_cast<size_t>(found)), into);
    store.wait_layer(ticket, kLayers - 1, PrefixStore::kNoDeadline);
    LoadProgress progress = store.poll(ticket);
    while (progress.state == TierState::busy) progress = store.poll(ticket);
    EXPECT_EQ(progress.state, TierState::ready);
    EXPECT_EQ(progress.layers, kLayers);
    for (int64_t i = 0; i < progress.blocks; ++i)
      EXPECT_TRUE(holds(pool, into[static_cast<size_t>(i)], chain[static_cast<size_t>(i)].key)) << i;
    store.erase(ticket);
    EXPECT_EQ(store.poll(ticket).state, TierState::failed);
    return progress.blocks;
  }

  std::string folder_, path_;
};

TEST_P(SsdStore, BlocksRoundTripWithEveryBackend) {
  const auto tokens = prompt(1, 5);
  const auto chain = prefix_chain(tokens, kStoreBlock, 0);
  for (const bool uring : {true, false}) {
    for (const bool direct : {true, false}) {
      KvPool pool = store_pool();
      {
        auto store =
            open(pool, 16, {.identity_text = fmt::format("{} {}", uring, direct), .uring = uring, .direct = direct});
        ASSERT_TRUE(store);
        if (!uring) {
          EXPECT_EQ(store->stats().io, "pread");
        }
        if (!direct) {
          EXPECT_FALSE(store->stats().direct);
        }
        EXPECT_EQ(load(*store, pool, chain), 0);
        put(*store, pool, chain);
      }
      auto store =
          open(pool, 16, {.identity_text = fmt::format("{} {}", uring, direct), .uring = uring, .direct = direct});
      ASSERT_TRUE(store);
      EXPECT_EQ(store->stats().blocks, 5);
      EXPECT_EQ(load(*store, pool, chain), 5);
      EXPECT_EQ(load(*store, pool, std::span(chain).subspan(2)), 3);
      EXPECT_EQ(store->stats().read_blocks, 8);
      EXPECT_EQ(store->stats().corrupt_blocks, 0);
      EXPECT_EQ(load(*store, pool, prefix_chain(tokens, kStoreBlock, 7)), 0);  // another tenant
    }
  }
}

TEST_P(SsdStore, FileIsBoundedAndEvictsLeastRecentlyUsed) {
  KvPool pool = store_pool();
  auto store = open(pool, 4);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->stats().capacity, 4);
  const auto a = prompt(1, 2), b = prompt(2, 2), c = prompt(3, 1);
  const auto chain_a = prefix_chain(a, kStoreBlock, 0), chain_b = prefix_chain(b, kStoreBlock, 0),
             chain_c = prefix_chain(c, kStoreBlock, 0);
  put(*store, pool, chain_a);
  put(*store, pool, chain_b);
  store.reset();
  store = open(pool, 4);
  EXPECT_EQ(load(*store, pool, chain_a), 2);  // used: b is evicted first, its second block before its first
  put(*store, pool, chain_c);
  store.reset();  // waits for the writes
  store = open(pool, 4);
  EXPECT_EQ(load(*store, pool, chain_a), 2);
  EXPECT_EQ(load(*store, pool, chain_b), 1);
  EXPECT_EQ(load(*store, pool, chain_c), 1);
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 4096 + 4 * kSlotFile);
}

TEST_P(SsdStore, OtherModelsSizesAndFilesAreDistinguished) {
  KvPool pool = store_pool();
  const auto tokens = prompt(1, 3);
  const auto chain = prefix_chain(tokens, kStoreBlock, 0);
  auto fresh = [&](int64_t blocks, const std::string& identity) {
    auto store = open(pool, blocks, {.identity_text = identity});
    const int64_t loaded = load(*store, pool, chain);
    put(*store, pool, chain);
    return loaded;
  };
  EXPECT_EQ(fresh(8, "one"), 0);
  EXPECT_EQ(fresh(8, "one"), 3);
  EXPECT_EQ(fresh(8, "two"), 0);
  EXPECT_EQ(fresh(9, "two"), 0);
  EXPECT_EQ(fresh(9, "two"), 3);
  ASSERT_EQ(::truncate(path_.c_str(), 3 * 4096), 0);  // a file whose creation was interrupted
  EXPECT_EQ(fresh(9, "two"), 0);

  auto first = open(pool, 9, {.identity_text = "two"});
  auto second = make_ssd_store(
      pool, {.path = path_, .bytes = 1 << 20, .identity_text = "two", .order = GetParam(), .lock_seconds = 0});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::user);
  first.reset();
  EXPECT_FALSE(make_ssd_store(pool, {.path = path_, .bytes = 4096, .identity_text = "two"}).ok());
  EXPECT_FALSE(make_ssd_store(pool, {.path = folder_, .bytes = 1 << 20, .identity_text = "two"}).ok());
  EXPECT_FALSE(make_ssd_store(pool, {.path = folder_ + "/none/store", .bytes = 1 << 20, .identity_text = "two"}).ok());

  std::ofstream(path_, std::ios::trunc) << "somebody's letters";
  auto foreign = make_ssd_store(pool, {.path = path_, .bytes = 1 << 20, .identity_text = "two"});
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().kind, ErrorKind::user);
  std::string kept;
  std::getline(std::ifstream(path_), kept);
  EXPECT_EQ(kept, "somebody's letters");
}

// Whichever byte is damaged, a block is loaded correctly or not at all.
TEST_P(SsdStore, DamageLosesOnlyItsBlock) {
  KvPool pool = store_pool();
  const auto tokens = prompt(1, 6);
  const auto chain = prefix_chain(tokens, kStoreBlock, 0);
  for (int64_t round = 0; round < 24; ++round) {
    ::unlink(path_.c_str());
    { put(*open(pool, 8), pool, chain); }
    const auto draw = philox4x32(5, 0, static_cast<uint64_t>(round));
    // Slots were allocated in order of the puts, the deepest block first.
    const int64_t slot = draw[0] % 6, block = 5 - slot, layer = round % 4 - 1;  // layer -1: the record
    const auto length = static_cast<int64_t>(layer < 0 ? 64 + 4 * kStoreBlock + 8 * kLayers : part_bytes(pool, layer));
    const auto geometry = StoreGeometry::create(pool.layout(), 4096 + 8 * kSlotFile, GetParam());
    ASSERT_TRUE(geometry.ok());
    const int64_t at =
        (layer < 0 ? geometry->record_at(slot) : geometry->place(slot, layer)) + static_cast<int64_t>(draw[1]) % length;
    const int fd = ::open(path_.c_str(), O_RDWR);
    uint8_t byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
    byte ^= static_cast<uint8_t>(1 << draw[2] % 8);
    ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    ::close(fd);
    auto store = open(pool, 8);
    EXPECT_EQ(load(*store, pool, chain), block) << round;
    EXPECT_EQ(store->stats().corrupt_blocks, 1);
    EXPECT_EQ(store->stats().blocks, 5);
    EXPECT_EQ(load(*store, pool, chain), block) << "found again";
    EXPECT_EQ(load(*store, pool, std::span(chain).subspan(static_cast<size_t>(block) + 1)), 5 - block);
    put(*store, pool, chain);  // computed again, stored again
    store.reset();
    store = open(pool, 8);
    EXPECT_EQ(load(*store, pool, chain), 6);
  }
}

TEST_P(SsdStore, ExcessWritesAreDroppedAndCounted) {
  KvPool pool = store_pool();
  auto store = open(pool, 64, {.write_bytes = 1});  // one block at a time
  const auto tokens = prompt(1, 40);
  const auto chain = prefix_chain(tokens, kStoreBlock, 0);
  for (size_t i = chain.size(); i-- > 0;) {
    fill(pool, 0, chain[i].key);
    store->put(chain[i], 0, false);
  }
  const int64_t dropped = store->stats().dropped_blocks;
  store.reset();
  store = open(pool, 64);
  EXPECT_EQ(store->stats().blocks, 40 - dropped);
  EXPECT_LT(dropped, 40);
  put(*store, pool, chain);
  EXPECT_EQ(store->stats().dropped_blocks, 0);  // blocking puts lose nothing
}

TEST_P(SsdStore, CancelledLoadLeavesTheBlocksUntouched) {
  KvPool pool = store_pool();
  auto store = open(pool);
  const auto tokens = prompt(1, 6);
  const auto chain = prefix_chain(tokens, kStoreBlock, 0);
  put(*store, pool, chain);
  while (store->find(chain) < 6) {
  }
  for (int round = 0; round < 50; ++round) {
    const BlockId into[] = {1, 2, 3, 4, 5, 6};
    const TierTicket ticket = store->load(chain, into);
    if (round % 2) store->wait_layer(ticket, 0, PrefixStore::kNoDeadline);
    store->erase(ticket);
    for (BlockId block : into) fill(pool, block, PrefixKey{9, static_cast<uint64_t>(round)});
    EXPECT_EQ(load(*store, pool, std::span(chain).first(1)),
              1);  // into the last block; the reader is past the other load
    for (BlockId block : into) EXPECT_TRUE(holds(pool, block, PrefixKey{9, static_cast<uint64_t>(round)}));
  }
  EXPECT_EQ(store->loading_blocks(), 0);
}

// A child process keeps writing blocks to a small store and is killed at a random time. All blocks that the file then
// holds are intact.
TEST_P(SsdStore, KilledProcessLeavesOnlyCompleteBlocks) {
  constexpr int64_t kPrompts = 12;
  std::vector<std::vector<TokenId>> prompts;
  for (int64_t i = 0; i < kPrompts; ++i) prompts.push_back(prompt(i, 3));
  int64_t whole = 0;
  for (uint64_t round = 0; round < 12; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KvPool pool = store_pool();
      auto store = open(pool, 10, {.uring = round % 2 == 0, .write_bytes = 3 * kSlotFile});
      for (uint64_t i = 0; store; ++i) {
        const auto& tokens = prompts[static_cast<size_t>(philox_uniform(round, 1, i) * kPrompts)];
        put(*store, pool, prefix_chain(tokens, kStoreBlock, 0));
        if (::write(pipe_ends[1], "x", 1) != 1) break;
      }
      ::_exit(1);
    }
    ::close(pipe_ends[1]);
    char byte;
    const auto reads = static_cast<int>(philox_uniform(round, 2, 0) * 60);
    for (int i = 0; i < reads; ++i) ASSERT_EQ(::read(pipe_ends[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ::close(pipe_ends[0]);
    ASSERT_TRUE(WIFSIGNALED(status));

    KvPool pool = store_pool();
    auto store = open(pool, 10);
    ASSERT_TRUE(store);
    for (const auto& tokens : prompts) {
      const auto chain = prefix_chain(tokens, kStoreBlock, 0);
      for (size_t i = 0; i < chain.size(); ++i) {
        const auto one = std::span(chain).subspan(i, 1);
        const int64_t found = store->find(one);
        EXPECT_EQ(load(*store, pool, one), found) << round;
        whole += found;
      }
    }
    EXPECT_EQ(store->stats().corrupt_blocks, 0) << round;
  }
  EXPECT_GT(whole, 20);
}

// One layer of adjacent slots is contiguous, no two parts overlap, and the file has exactly the size of all parts.
TEST(StoreGeometry, PartsDoNotOverlap) {
  KvPool pool = store_pool();
  for (const StoreOrder order : {StoreOrder::arrival, StoreOrder::importance}) {
    for (const int64_t blocks : {1, 3, 64, 65, 130}) {
      const auto g = StoreGeometry::create(pool.layout(), 4096 + blocks * kSlotFile, order);
      ASSERT_TRUE(g.ok());
      ASSERT_EQ(g->capacity, blocks);
      std::map<int64_t, int64_t> parts;  // begin -> end
      for (int64_t slot = 0; slot < blocks; ++slot)
        for (int64_t layer = 0; layer < kLayers; ++layer)
          parts[g->place(slot, layer)] = g->place(slot, layer) + g->padded(layer);
      ASSERT_EQ(std::ssize(parts), blocks * kLayers);
      int64_t at = g->slots_at();
      for (const auto& [begin, end] : parts) {
        EXPECT_EQ(begin, at);
        at = end;
      }
      EXPECT_EQ(at, g->file_bytes());
      if (blocks > 1 && order == StoreOrder::importance) {
        EXPECT_EQ(g->place(1, 1), g->place(0, 1) + g->padded(1));
      }
    }
  }
}

// Blocks put together get adjacent slots by decreasing attention mass, prompt by prompt, and their mass is stored.
TEST_P(SsdStore, BlockPlacementFollowsTheOrder) {
  KvPool pool = store_pool();
  const auto a = prompt(1, 4), b = prompt(2, 3);
  auto chain_a = prefix_chain(a, kStoreBlock, 0), chain_b = prefix_chain(b, kStoreBlock, 0);
  const float mass_a[] = {2, 0.5f, 3, 1}, mass_b[] = {1, 7, 5};
  for (size_t i = 0; i < chain_a.size(); ++i) chain_a[i].importance = mass_a[i];
  for (size_t i = 0; i < chain_b.size(); ++i) chain_b[i].importance = mass_b[i];
  {
    auto store = open(pool);
    for (const auto* chain : {&chain_a, &chain_b}) {
      for (size_t i = chain->size(); i-- > 0;) {
        fill(pool, 0, (*chain)[i].key);
        store->put((*chain)[i], 0, true);
      }
    }
  }
  const auto geometry = StoreGeometry::create(pool.layout(), 4096 + 16 * kSlotFile, GetParam());
  ASSERT_TRUE(geometry.ok());
  std::ifstream file(path_, std::ios::binary);
  std::vector<float> masses;
  for (int64_t slot = 0; slot < 7; ++slot) {
    float mass = 0;
    file.seekg(geometry->record_at(slot) + 12);  // frozen
    file.read(reinterpret_cast<char*>(&mass), sizeof mass);
    masses.push_back(mass);
  }
  const bool packed = GetParam() == StoreOrder::importance;
  EXPECT_EQ(masses,
            packed ? (std::vector<float>{3, 2, 1, 0.5f, 7, 5, 1}) : (std::vector<float>{1, 3, 0.5f, 2, 5, 7, 1}));

  auto store = open(pool);
  EXPECT_EQ(store->importance(chain_b[1]), 7);
  EXPECT_EQ(store->importance(prefix_chain(b, kStoreBlock, 1)[0]), 0);
  EXPECT_EQ(load(*store, pool, chain_a), 4);
  EXPECT_EQ(load(*store, pool, chain_b), 3);
  const ChainLink some[] = {chain_a[0], chain_a[2], chain_a[3]};  // a part of a chain
  const BlockId into[] = {3, 4, 5};
  const TierTicket ticket = store->load(some, into);
  store->wait_layer(ticket, kLayers - 1, PrefixStore::kNoDeadline);
  while (store->poll(ticket).state == TierState::busy) {
  }
  EXPECT_EQ(store->poll(ticket).blocks, 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(holds(pool, into[i], some[i].key)) << i;
  store.reset();

  auto other = make_ssd_store(pool, {.path = path_,
                                     .bytes = 4096 + 16 * kSlotFile,
                                     .identity_text = "a model",
                                     .order = packed ? StoreOrder::arrival : StoreOrder::importance});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->stats().blocks, 0);  // another layout: recreated
}

INSTANTIATE_TEST_SUITE_P(Orders, SsdStore, ::testing::Values(StoreOrder::arrival, StoreOrder::importance),
                         [](const auto& test) {
                           return std::string(test.param == StoreOrder::arrival ? "Arrival" : "Importance");
                         });

}  // namespace
}  // namespace millrace
