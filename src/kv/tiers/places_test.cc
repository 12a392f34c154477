// Registered tiers and stores: made from text they are the ones made directly, and a new one is a record.
#include "kv/tiers/places.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/choose.h"
#include "base/memory_accounts.h"
#include "kv/tiers/block_runs.h"

namespace millrace {
namespace {

KvLayout small_layout() { return {find_format("f16"), 4, {{2, 8}, {2, 8}}}; }

void fill_place(KvPool& pool, BlockId block, uint8_t value) {
  for (int64_t layer = 0; layer < std::ssize(pool.layout().layers); ++layer)
    each_run_of(pool, layer, block,
                [&](uint8_t* row, size_t bytes) { std::memset(row, value + static_cast<int>(layer), bytes); });
}

bool place_holds(KvPool& pool, BlockId block, uint8_t value) {
  bool same = true;
  for (int64_t layer = 0; layer < std::ssize(pool.layout().layers); ++layer)
    each_run_of(pool, layer, block, [&](const uint8_t* row, size_t bytes) {
      for (size_t i = 0; i < bytes; ++i) same &= row[i] == value + layer;
    });
  return same;
}

// What every tier has to do with the blocks of one stream.
void check_tier(KvTier& tier, KvPool& pool) {
  const BlockId a = pool.allocate().value(), b = pool.allocate().value();
  fill_place(pool, a, 10);
  fill_place(pool, b, 20);
  const int64_t free = tier.free_tokens();
  const std::vector<BlockId> blocks = {a, b};
  const auto ticket = tier.put(blocks, 7);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  while (tier.poll(*ticket) == TierState::busy) {
  }
  EXPECT_EQ(tier.free_tokens(), free - 7);
  fill_place(pool, a, 1);
  fill_place(pool, b, 1);
  const std::vector<BlockId> swapped = {b, a};
  ASSERT_TRUE(tier.get(*ticket, swapped).ok());
  while (tier.poll(*ticket) == TierState::busy) {
  }
  EXPECT_EQ(tier.poll(*ticket), TierState::ready);
  EXPECT_TRUE(place_holds(pool, b, 10));
  EXPECT_TRUE(place_holds(pool, a, 20));
  EXPECT_FALSE(tier.get(*ticket, std::span(blocks).first(1)).ok());
  tier.erase(*ticket);
  EXPECT_EQ(tier.free_tokens(), free);
  EXPECT_EQ(tier.poll(*ticket), TierState::failed);
  EXPECT_FALSE(tier.put(blocks, free + 1).ok());
}

TEST(Places, EveryTierKeepsAStreamsBlocks) {
  for (const auto& entry : kv_tiers().entries()) {
    if (entry.info.name == "disk") continue;  // of running streams: DiskIsOfRunningStreams
    auto pool = std::move(*KvPool::create(small_layout(), 4));
    const auto chosen = choose_member("KV tier", kv_tiers(), entry.info.name + ":tokens=16");
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    EXPECT_EQ(chosen->member.memory(pool.layout(), chosen->options).value(), 4 * pool.layout().block_bytes());
    const auto tier = chosen->member.make(pool, chosen->options);
    ASSERT_TRUE(tier.ok());
    EXPECT_EQ((*tier)->free_tokens(), 16);
    check_tier(**tier, pool);
  }
}

TEST(Places, DiskIsOfRunningStreams) {
  const auto options = [](const std::string& text) -> Result<KeyStreamOptions> {
    MILLRACE_TRY(const auto chosen, choose_member("KV tier", kv_tiers(), text));
    EXPECT_FALSE(chosen.member.make);
    EXPECT_FALSE(chosen.member.memory);
    return chosen.member.stream(chosen.options);
  };
  const auto given = options("disk:path=/var/tmp,memory=3M,ahead=0");
  ASSERT_TRUE(given.ok()) << given.error().message;
  EXPECT_EQ(given->folder, "/var/tmp");
  EXPECT_EQ(given->memory, *parse_bytes("3M"));
  EXPECT_FALSE(given->reads_ahead);
  const auto plain = options("disk:path=/var/tmp");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->memory, 0);
  EXPECT_TRUE(plain->reads_ahead);
  EXPECT_EQ(options("disk").error().message, "KV tier disk: needs a folder on a fast disk for its file, path=FOLDER");
  EXPECT_FALSE(options("disk:path=/var/tmp,memory=much").ok());
  EXPECT_FALSE(options("disk:path=/var/tmp,ahead=2").ok());
}

TEST(Places, TheSsdStoreByName) {
  const std::string path = testing::TempDir() + "/places_store_" + std::to_string(getpid());
  auto pool = std::move(*KvPool::create(small_layout(), 8));
  const auto chosen =
      choose_member("KV store", kv_stores(), "ssd:path=" + path + ",size=1M,order=importance,deadline_ms=250");
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_GT(chosen->member.memory(pool.layout(), chosen->options).value(), 0);
  const std::vector<TokenId> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto chain = prefix_chain(ids, 4, 0);  // refers to them
  {
    const auto store = chosen->member.make(pool, "model", chosen->options);
    ASSERT_TRUE(store.ok()) << store.error().message;
    EXPECT_TRUE((*store)->wants_importance());
    EXPECT_EQ((*store)->deadline_seconds(), 0.25);
    EXPECT_FALSE((*store)->is_shared());
    const BlockId block = pool.allocate().value();
    fill_place(pool, block, 40);
    (*store)->put(chain[0], block, true);
    (*store)->flush();
  }
  const auto again = chosen->member.make(pool, "model", chosen->options);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ((*again)->find(chain), 1);
  const std::vector<BlockId> into = {pool.allocate().value()};
  const TierTicket ticket = (*again)->load(std::span(chain).first(1), into);
  while ((*again)->poll(ticket).state == TierState::busy) (*again)->wait();
  EXPECT_EQ((*again)->poll(ticket).blocks, 1);
  EXPECT_TRUE(place_holds(pool, into[0], 40));
  std::filesystem::remove(path);
}

TEST(Places, Messages) {
  const auto message = [](const std::string& text) {
    const auto chosen = choose_member("KV store", kv_stores(), text);
    if (!chosen.ok()) return chosen.error().message;
    const auto bytes = chosen->member.memory(small_layout(), chosen->options);
    return bytes.ok() ? std::string() : bytes.error().message;
  };
  EXPECT_EQ(message("tape"), "KV store: unknown 'tape'; available: ssd, redis, node");
  EXPECT_EQ(message("ssd"), "KV store: needs a file, path=...");
  EXPECT_EQ(message("ssd:path=/tmp/a,size=much").find("KV store: size: "), 0u) << message("ssd:path=/tmp/a,size=much");
  EXPECT_EQ(message("ssd:path=/tmp/a,folder=b"),
            "KV store ssd: folder: no such option; known: path, size, order, fetch, deadline_ms");
  EXPECT_EQ(message("redis"), "");
  EXPECT_EQ(message("redis:host="), "KV store: needs a server, host=...");
  EXPECT_EQ(message("redis:user=a"), "KV store: user: a user needs a password, password_env=NAME");
  EXPECT_EQ(message("redis:password_env=MILLRACE_NO_SUCH_VARIABLE"),
            "KV store: password_env: the environment has no variable MILLRACE_NO_SUCH_VARIABLE");
  EXPECT_EQ(
      choose_member("KV store", kv_stores(), "redis:port=0").error().message.find("KV store redis: port: must be"), 0u);
  EXPECT_EQ(message("node"), "KV store: needs a store node, host=...,port=...");
  EXPECT_EQ(message("node:host=a"), "KV store: needs the store node's port, port=...");
  EXPECT_EQ(message("node:host=a,port=9"), "");
  const auto tier = choose_member("KV tier", kv_tiers(), "memory:tokens=-1");
  ASSERT_FALSE(tier.ok());
  EXPECT_EQ(tier.error().message.find("KV tier memory: tokens: must be between 0 and"), 0u) << tier.error().message;
}

// The worked example of docs/how-to-add/tier.md: an in-memory tier, as a member file defines it.
class MapTier final : public KvTier {
 public:
  MapTier(KvPool& pool, int64_t tokens) : pool_(pool), free_(tokens) {}
  int64_t free_tokens() const override { return free_; }
  Result<TierTicket> put(std::span<const BlockId> blocks, int64_t tokens) override {
    if (tokens > free_) return Error::resource("KV tier: full");
    Stored& stored = stored_[++last_];
    stored.tokens = tokens;
    stored.blocks = blocks.size();
    each_run(blocks, [&](uint8_t* row, size_t bytes) { stored.bytes.append(reinterpret_cast<char*>(row), bytes); });
    free_ -= tokens;
    return last_;
  }
  Result<void> get(TierTicket ticket, std::span<const BlockId> into) override {
    const auto found = stored_.find(ticket);
    if (found == stored_.end() || found->second.blocks != into.size())
      return Error::internal("KV tier: no such ticket for that many blocks");
    const char* from = found->second.bytes.data();
    each_run(into, [&](uint8_t* row, size_t bytes) { std::memcpy(row, std::exchange(from, from + bytes), bytes); });
    return {};
  }
  TierState poll(TierTicket ticket) override { return stored_.contains(ticket) ? TierState::ready : TierState::failed; }
  void erase(TierTicket ticket) override {
    if (const auto found = stored_.extract(ticket)) free_ += found.mapped().tokens;
  }

 private:
  struct Stored {
    std::string bytes;
    int64_t tokens = 0;
    size_t blocks = 0;
  };
  template <typename Use>
  void each_run(std::span<const BlockId> blocks, Use&& use) {
    for (const BlockId block : blocks)
      for (size_t layer = 0; layer < pool_.layout().layers.size(); ++layer)
        each_run_of(pool_, static_cast<int64_t>(layer), block, use);
  }

  KvPool& pool_;
  int64_t free_;
  TierTicket last_ = 0;
  std::map<TierTicket, Stored> stored_;
};

const TierMember kMapTier = {
    .memory = [](const KvLayout& layout, const OptionValues& options) -> Result<int64_t> {
      return options.integer("tokens") * layout.bytes_per_token();
    },
    .make = [](KvPool& pool, const OptionValues& options) -> Result<std::unique_ptr<KvTier>> {
      return std::unique_ptr<KvTier>(std::make_unique<MapTier>(pool, options.integer("tokens")));
    },
};

TEST(Places, TheExampleOfTheGuide) {
  const Registry<TierMember> registry(
      FamilyFacts(),
      {{{"tier", "map", "keeps bytes in a map", "", {{"tokens", OptionSpec::Type::integer, "0", 0, 1e9, "room"}}},
        kMapTier}});
  auto pool = std::move(*KvPool::create(small_layout(), 4));
  const auto chosen = choose_member("KV tier", registry, "map:tokens=16");
  ASSERT_TRUE(chosen.ok());
  const auto tier = chosen->member.make(pool, chosen->options);
  ASSERT_TRUE(tier.ok());
  check_tier(**tier, pool);
}

}  // namespace
}  // namespace millrace
