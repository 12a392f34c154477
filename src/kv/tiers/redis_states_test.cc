// Recurrent states on a Redis server: they continue a prefix only with all blocks before them, and a state that lacks a
// piece is not used.
#include "kv/tiers/recurrent_pool_test.h"
#include "kv/tiers/redis_store_test.h"

namespace millrace {
namespace {

class RedisStates : public RedisStoreTest, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<PrefixStore> open_states() {
    auto made = make_redis_store(states_, options());
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }
  int64_t found(PrefixStore& store, int64_t held = 0) {
    const TierTicket ticket = store.lookup(chain_, held);
    LookupProgress progress = store.poll_lookup(ticket);
    for (; progress.state == TierState::busy; progress = store.poll_lookup(ticket)) store.wait();
    store.erase(ticket);
    return progress.blocks;
  }
  LoadProgress load_states(PrefixStore& store, size_t blocks) {
    fill_state(states_, 2, 2);
    const auto chain = std::span(chain_).first(blocks);
    const TierTicket ticket = store.load(chain, std::span(into_).first(blocks), {chain.back().key, 2});
    store.wait_layer(ticket, 1, 60);
    const LoadProgress progress = store.poll(ticket);
    store.erase(ticket);
    return progress;
  }
  // The chain's blocks, and a state behind the second one.
  void store_states() {
    auto store = open_states();
    for (size_t i = 0; i < 3; ++i) {
      fill_block(states_, 0, static_cast<uint8_t>(10 + i));
      store->put(chain_[i], 0, true);
    }
    fill_state(states_, 1, 20);
    store->put_state({chain_[1].key, 1}, true);
    fill_state(states_, 1, 1);  // the bytes were copied
    const int64_t all = 3 + store->stats().state_blocks;
    EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == all; }));
    store->put_state({chain_[1].key, 1}, true);  // the server has it
    EXPECT_EQ(server_->count("SET"), all);
  }

  KvPool states_ = GetParam() ? hybrid_pool() : recurrent_pool();
};

TEST_P(RedisStates, ReturnWithTheBlocksBeforeThem) {
  store_states();
  auto store = open_states();
  EXPECT_EQ(found(*store), 2);
  EXPECT_EQ(found(*store, 2), 2);
  EXPECT_EQ(found(*store, 3), 2);
  const LoadProgress progress = load_states(*store, 2);
  EXPECT_EQ(progress.blocks, 2);
  EXPECT_TRUE(progress.state_arrived);
  EXPECT_TRUE(state_is(states_, 2, 20));
  for (const BlockId block : {1, 2}) EXPECT_TRUE(block_is(states_, block, static_cast<uint8_t>(9 + block)));
  EXPECT_FALSE(load_states(*store, 1).state_arrived) << "there is no state behind the first block";
  EXPECT_EQ(store->loading_blocks(), 0);
  const auto written = server_->count("SET");
  store->put_state({chain_[1].key, 2}, true);  // what a load brought is on the server
  store.reset();
  EXPECT_EQ(server_->count("SET"), written);
}

// Each value of the server in turn is damaged.
TEST_P(RedisStates, AStateWithoutOneOfItsImagesIsNotUsed) {
  store_states();
  auto store = open_states();
  const int64_t pieces = store->stats().state_blocks;
  for (int64_t i = 0; i < 2 + pieces; ++i) {
    server_->answer([count = int64_t{0}, i](const FakeRedis::Command& command, const std::string& reply) mutable {
      std::string sent = reply;
      if (command[0] == "GETRANGE" && count++ == i) sent[sent.size() / 2] ^= 4;
      return FakeRedis::Answer{sent};
    });
    const LoadProgress progress = load_states(*store, 2);
    EXPECT_FALSE(progress.state_arrived) << i;
    EXPECT_EQ(progress.blocks, std::min<int64_t>(i, 2));
    EXPECT_EQ(store->stats().corrupt_blocks, i + 1);
  }
  server_->answer({});
  fill_state(states_, 1, 20);
  store->put_state({chain_[1].key, 1}, true);
  EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == 1; }))
      << "the image that was damaged last is stored again, and no other";
  EXPECT_TRUE(load_states(*store, 2).state_arrived);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RedisStates, ::testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "Hybrid" : "Recurrent"); });

}  // namespace
}  // namespace millrace
