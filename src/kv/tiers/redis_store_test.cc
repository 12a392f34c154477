// The store on a Redis server: blocks return as they were stored, to engines of the same model; an absent, full or
// strict server costs nothing but the blocks.
#include "kv/tiers/redis_store_test.h"

#include <set>

namespace millrace {
namespace {

TEST_F(RedisStoreTest, BlocksReturnAsTheyWereStored) {
  store_chain();
  EXPECT_EQ(server_->values().size(), 3u);
  auto store = open(options());
  EXPECT_TRUE(store->is_shared());
  EXPECT_TRUE(store->stats().connected);
  EXPECT_EQ(store->stats().io, "redis");
  EXPECT_EQ(store->stats().capacity, -1);
  EXPECT_FALSE(store->holds(chain_[0])) << "it has not asked yet";
  EXPECT_EQ(store->find(chain_), 3);
  EXPECT_TRUE(store->holds(chain_[0]));
  EXPECT_EQ(store->stats().blocks, 3);
  const LoadProgress progress = load(*store, chain_);
  EXPECT_EQ(progress.state, TierState::ready);
  EXPECT_EQ(progress.layers, 2);
  EXPECT_EQ(progress.blocks, 3);
  EXPECT_GT(progress.seconds, 0);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(filled(into_[i], static_cast<uint8_t>(10 + 10 * i))) << i;
  EXPECT_EQ(store->stats().read_blocks, 3);
  EXPECT_EQ(store->stats().read_bytes, 3 * (64 + 16 + 16 + 384));
  EXPECT_EQ(store->loading_blocks(), 0);
  put(*store, chain_);  // the server has them
  EXPECT_EQ(server_->count("SET"), 3);
}

TEST_F(RedisStoreTest, AGapEndsWhatIsFound) {
  auto store = open(options());
  put(*store, std::span(chain_).first(1));
  put(*store, std::span(chain_).last(1));
  EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == 2; }));
  EXPECT_EQ(store->find(chain_), 1);
  EXPECT_FALSE(store->holds(chain_[1]));
  EXPECT_TRUE(store->holds(chain_[2]));
}

// The identity, the prefix and the database separate stores.
TEST_F(RedisStoreTest, OtherModelsAndPrefixesFindNothing) {
  store_chain();
  RedisStoreOptions other = options();
  other.identity_text = "another model";
  EXPECT_EQ(open(other)->find(chain_), 0);
  other = options();
  other.prefix = "tests";
  auto store = open(other);
  EXPECT_EQ(store->find(chain_), 0);
  put(*store, chain_);
  store.reset();  // completes the writes
  std::set<std::string> prefixes;
  for (const auto& [key, value] : server_->values()) prefixes.insert(key.substr(0, key.find(':')));
  EXPECT_EQ(prefixes, (std::set<std::string>{"millrace", "tests"}));
  EXPECT_EQ(server_->values().size(), 6u);
}

TEST_F(RedisStoreTest, BlocksExpireUnlessToldOtherwise) {
  for (const int64_t ttl : {0, 77}) {
    std::vector<size_t> parts;
    std::string last;
    server_->answer([&](const FakeRedis::Command& command, const std::string& reply) {
      if (command[0] == "SET") parts.push_back(command.size()), last = command.back();
      return FakeRedis::Answer{reply};
    });
    RedisStoreOptions o = options();
    o.ttl_seconds = ttl;
    auto store = open(o);
    put(*store, std::span(chain_).first(1));
    store.reset();
    EXPECT_EQ(parts, std::vector<size_t>{ttl > 0 ? 5u : 3u});
    if (ttl > 0) {
      EXPECT_EQ(last, "77");
    }
    server_->answer({});
  }
}

TEST_F(RedisStoreTest, LogsIn) {
  server_ = std::make_unique<FakeRedis>(0, "secret");
  const auto refused = make_redis_store(pool_, options());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message, "KV store: the Redis server refuses the connection: NOAUTH log in first");
  RedisStoreOptions o = options();
  o.password = "guessed";
  EXPECT_EQ(make_redis_store(pool_, o).error().message,
            "KV store: the Redis server refuses the connection: WRONGPASS no such password");
  o.password = "secret";
  o.database = 3;
  EXPECT_TRUE(open(o)->stats().connected);
  EXPECT_EQ(server_->count("SELECT"), 1);
  o.user = "someone";
  EXPECT_TRUE(open(o)->stats().connected);
}

// Without a server nothing waits, and once there is one the store is used.
TEST_F(RedisStoreTest, AnAbsentServerIsFoundLater) {
  const RedisStoreOptions o = options();
  server_.reset();
  auto store = open(o);
  ASSERT_TRUE(store);
  EXPECT_FALSE(store->stats().connected);
  EXPECT_FALSE(store->has_room());
  const TierTicket lookup = store->lookup(chain_);
  EXPECT_EQ(store->poll_lookup(lookup).state, TierState::ready);
  EXPECT_EQ(store->poll_lookup(lookup).blocks, 0);
  put(*store, chain_);
  EXPECT_EQ(store->stats().dropped_blocks, 3);
  EXPECT_EQ(load(*store, chain_).blocks, 0);
  EXPECT_TRUE(filled(into_[0], 2));
  server_ = std::make_unique<FakeRedis>(o.port);
  EXPECT_TRUE(until(*store, [&] { return store->stats().connected; }));
  put(*store, chain_);
  EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == 3; }));
}

TEST_F(RedisStoreTest, AFullServerStoresNothing) {
  server_->answer([](const FakeRedis::Command& command, const std::string& reply) {
    return FakeRedis::Answer{command[0] == "SET" ? "-OOM command not allowed when used memory > 'maxmemory'.\r\n"
                                                 : reply};
  });
  auto store = open(options());
  put(*store, chain_);
  EXPECT_TRUE(until(*store, [&] { return store->stats().dropped_blocks == 3; }));
  EXPECT_FALSE(store->holds(chain_[0]));
  EXPECT_TRUE(store->stats().connected);
  server_->answer({});
  put(*store, chain_);
  EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == 3; }));
}

// A server that does not answer fills the queue, which is bounded; the rest is dropped.
TEST_F(RedisStoreTest, TheQueueOfWritesIsBounded) {
  server_->answer([](const FakeRedis::Command& command, const std::string& reply) {
    return FakeRedis::Answer{command[0] == "SET" ? "" : reply};
  });
  std::vector<TokenId> many(4 * 3000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<TokenId>(i);
  auto store = open(options());
  for (const ChainLink& link : prefix_chain(many, kBlock, 0)) store->put(link, 0, false);
  EXPECT_GT(store->stats().dropped_blocks, 1000);
  EXPECT_FALSE(store->has_room());
  server_.reset();  // or the store would wait for it
}

// Writes that the server still accepts are completed before the store is gone.
TEST_F(RedisStoreTest, ClosingCompletesWrites) {
  std::vector<TokenId> many(4 * 500);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<TokenId>(i);
  {
    auto store = open(options());
    for (const ChainLink& link : prefix_chain(many, kBlock, 0)) store->put(link, 0, true);
  }
  EXPECT_EQ(server_->values().size(), 500u);
}

}  // namespace
}  // namespace millrace
