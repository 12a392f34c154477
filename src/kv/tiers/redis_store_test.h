// A store on a fake Redis server, and a pool whose blocks are told by their bytes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "kv/tiers/block_runs.h"
#include "kv/tiers/fake_redis_test.h"
#include "kv/tiers/redis_store.h"

namespace millrace {

class RedisStoreTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlock = 4;

  RedisStoreOptions options(double deadline = 20) const {
    RedisStoreOptions o;
    o.port = server_->port();
    o.deadline_seconds = deadline;
    o.retry_seconds = 0.005;
    o.identity_text = "a model";
    return o;
  }
  std::unique_ptr<PrefixStore> open(const RedisStoreOptions& o) {
    auto store = make_redis_store(pool_, o);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(*store) : nullptr;
  }
  void fill(BlockId block, uint8_t value) {
    for (int64_t layer = 0; layer < 2; ++layer)
      copy_in(pool_, layer, block, std::vector<uint8_t>(layer ? 256 : 128, static_cast<uint8_t>(value + layer)).data());
  }
  bool filled(BlockId block, uint8_t value) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      std::vector<uint8_t> bytes(layer ? 256 : 128);
      copy_out(pool_, layer, block, bytes.data());
      if (bytes != std::vector<uint8_t>(bytes.size(), static_cast<uint8_t>(value + layer))) return false;
    }
    return true;
  }
  // Block i of the chain holds the value 10 + 10 i.
  void put(PrefixStore& store, std::span<const ChainLink> chain) {
    for (size_t i = 0; i < chain.size(); ++i) {
      fill(0, static_cast<uint8_t>(10 + 10 * i));
      store.put(chain[i], 0, true);
      fill(0, 1);  // the bytes were copied
    }
  }
  // Runs `step` until `holds`, a minute at most.
  static bool until(PrefixStore& store, const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      store.erase(store.lookup({}));  // collects what has ended
      store.wait();
    }
    return true;
  }
  // The chain's blocks on the server.
  void store_chain() {
    auto store = open(options());
    put(*store, chain_);
    EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == std::ssize(chain_); }));
  }
  LoadProgress load(PrefixStore& store, std::span<const ChainLink> chain) {
    for (size_t i = 0; i < chain.size(); ++i) fill(into_[i], 2);
    const TierTicket ticket = store.load(chain, std::span(into_).first(chain.size()));
    store.wait_layer(ticket, 1, 60);
    const LoadProgress progress = store.poll(ticket);
    store.erase(ticket);
    return progress;
  }

  std::unique_ptr<FakeRedis> server_ = std::make_unique<FakeRedis>();
  KvPool pool_ = std::move(*KvPool::create({find_format("f16"), kBlock, {{1, 8}, {2, 8}}}, 8));
  const std::vector<TokenId> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<ChainLink> chain_ = prefix_chain(tokens_, kBlock, 0);
  const std::vector<BlockId> into_ = {1, 2, 3};
};

}  // namespace millrace
