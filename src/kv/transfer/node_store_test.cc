// Blocks that move from one engine's store to another's, for every transport: a node that prefills and one that
// decodes, and a store node in between.
#include "kv/transfer/node_store.h"

#include <gtest/gtest.h>

#include <thread>

#include "kv/tiers/recurrent_pool_test.h"
#include "kv/transfer/block_exchange.h"
#include "kv/transfer/transport.h"

namespace millrace {
namespace {

using NodeClock = std::chrono::steady_clock;

TransferToken token_of(uint8_t value) {
  TransferToken token{};
  token.fill(value);
  return token;
}

class NodeStores : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kBlock = kStateBlock;

  std::shared_ptr<BlockExchange> exchange(bool keeps, uint8_t key = 1, int64_t bytes = 1 << 20) {
    BlockExchange::Options options{.keeps = keeps, .shelf = {.bytes = bytes}, .transport = GetParam()};
    options.server.token = token_of(key);
    auto made = BlockExchange::create(options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *made;
  }
  std::unique_ptr<PrefixStore> open(KvPool& pool, const std::shared_ptr<BlockExchange>& exchange,
                                    const std::string& model = "a model", int store_port = 0) {
    NodeStoreOptions options{.exchange = exchange ? exchange->name() : "",
                             .transport = GetParam(),
                             .deadline_seconds = 20,
                             .identity_text = model};
    if (store_port > 0) options.host = "127.0.0.1", options.port = store_port;
    auto made = make_node_store(pool, options);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(*made) : nullptr;
  }
  // The chain's blocks on the first node, with a state behind the second one; returns the ticket.
  BlockTicket prefill(PrefixStore& store, BlockExchange& from, std::span<const ChainLink> chain) {
    for (size_t i = 0; i < chain.size(); ++i) {
      fill_block(first_pool_, 0, static_cast<uint8_t>(10 + i));
      store.put(chain[i], 0, true);
    }
    if (first_pool_.layout().recurrent()) {
      fill_state(first_pool_, 1, 20);
      store.put_state({chain[1].key, 1}, true);
    }
    std::vector<PrefixKey> keys;
    for (const ChainLink& link : chain) keys.push_back(link.key);
    auto ticket = from.issue(keys);
    EXPECT_TRUE(ticket);
    ticket->host = "127.0.0.1";
    return *ticket;
  }
  static int64_t found(PrefixStore& store, std::span<const ChainLink> chain) {
    const TierTicket ticket = store.lookup(chain);
    LookupProgress progress = store.poll_lookup(ticket);
    for (; progress.state == TierState::busy; progress = store.poll_lookup(ticket)) store.wait();
    store.erase(ticket);
    return progress.blocks;
  }
  LoadProgress load(PrefixStore& store, std::span<const ChainLink> chain, const StateBehind& state = {}) {
    const TierTicket ticket = store.load(chain, std::span(into_).first(chain.size()), state);
    store.wait_layer(ticket, 0, 20);
    LoadProgress progress = store.poll(ticket);
    for (; progress.state == TierState::busy; progress = store.poll(ticket)) store.wait();
    store.erase(ticket);
    return progress;
  }
  static KvPool plain_pool() { return std::move(*KvPool::create({find_format("f16"), kBlock, {{1, 8}, {2, 8}}}, 12)); }
  static void expect_balance(BlockExchange& exchange) {
    const ShelfStats s = exchange.shelf()->stats();
    EXPECT_EQ(s.free + s.held + s.idle, s.capacity);
  }

  KvPool first_pool_ = plain_pool(), second_pool_ = plain_pool();
  const std::vector<TokenId> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<ChainLink> chain_ = prefix_chain(tokens_, kBlock, 0);
  const std::vector<BlockId> into_ = {1, 2, 3};
};

TEST_P(NodeStores, BlocksMoveUnderATicket) {
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  const BlockTicket ticket = prefill(*first, *from, chain_);
  EXPECT_EQ(found(*second, chain_), 0) << "no ticket yet";
  EXPECT_FALSE(second->always_loads());
  to->announce(ticket);
  ASSERT_EQ(found(*second, chain_), 3);
  EXPECT_TRUE(second->always_loads());
  EXPECT_EQ(load(*second, chain_).blocks, 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(block_is(second_pool_, into_[i], static_cast<uint8_t>(10 + i))) << i;
  EXPECT_EQ(second->stats().read_blocks, 3);
  EXPECT_EQ(from->shelf()->stats().read_blocks, 3);
  EXPECT_EQ(second->loading_blocks(), 0);
  const auto end = NodeClock::now() + std::chrono::seconds(20);
  while (from->shelf()->stats().held > 0 && NodeClock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(from->shelf()->stats().held, 0) << "what was read is held no longer";
  expect_balance(*from);
}

TEST_P(NodeStores, AnotherTenantsTicketIsOfNoUse) {
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  const BlockTicket ticket = prefill(*first, *from, chain_);
  const auto other = prefix_chain(tokens_, kBlock, 5);
  to->announce(ticket);
  EXPECT_EQ(found(*second, other), 0);
  // Even if a router says so, the node that has the blocks gives none that the lease does not cover.
  prefill(*first, *from, other);
  BlockTicket forged = ticket;
  forged.key = other.back().key;
  to->announce(forged);
  EXPECT_EQ(found(*second, other), 0);
  EXPECT_GE(from->shelf()->stats().refused_reads, 3);
}

TEST_P(NodeStores, AnotherModelsTicketIsOfNoUse) {
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to, "another model");
  to->announce(prefill(*first, *from, chain_));
  EXPECT_EQ(found(*second, chain_), 0);
}

TEST_P(NodeStores, ANodeWithAnotherKeyIsRefused) {
  auto from = exchange(true, 1), to = exchange(false, 2);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  to->announce(prefill(*first, *from, chain_));
  EXPECT_EQ(found(*second, chain_), 0);
  EXPECT_EQ(from->shelf()->stats().read_blocks, 0);
}

TEST_P(NodeStores, ADamagedBlockAndThoseBehindItAreNotLoaded) {
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  const BlockTicket ticket = prefill(*first, *from, chain_);
  const uint64_t reader = from->shelf()->open_lease();
  const StoreIdentity model = store_identity(identity_text(first_pool_.layout(), "a model"));
  ASSERT_TRUE(from->shelf()->read(reader, {model, chain_[1].key}, [](std::span<const uint8_t> image, uint64_t) {
    const_cast<uint8_t&>(image[image.size() - 3]) ^= 1;
  }));
  to->announce(ticket);
  ASSERT_EQ(found(*second, chain_), 3);
  EXPECT_EQ(load(*second, chain_).blocks, 1);
  EXPECT_EQ(second->stats().corrupt_blocks, 1);
}

TEST_P(NodeStores, ANodeThatIsGoneHasNothing) {
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  const BlockTicket ticket = prefill(*first, *from, chain_);
  to->announce(ticket);
  ASSERT_EQ(found(*second, chain_), 3);
  first.reset();
  from.reset();
  EXPECT_EQ(load(*second, chain_).blocks, 0);
  EXPECT_EQ(found(*second, chain_), 0);
}

TEST_P(NodeStores, AStateMovesWithItsBlocks) {
  first_pool_ = hybrid_pool();
  second_pool_ = hybrid_pool();
  auto from = exchange(true), to = exchange(false);
  auto first = open(first_pool_, from), second = open(second_pool_, to);
  to->announce(prefill(*first, *from, chain_));
  ASSERT_EQ(found(*second, chain_), 2) << "the longest prefix with a state behind it";
  const auto chain = std::span(chain_).first(2);
  const LoadProgress progress = load(*second, chain, {chain_[1].key, 2});
  EXPECT_EQ(progress.blocks, 2);
  EXPECT_TRUE(progress.state_arrived);
  EXPECT_TRUE(state_is(second_pool_, 2, 20));
}

TEST_P(NodeStores, AStoreNodeKeepsBlocksForOthers) {
  BlockExchange::Options options{.keeps = true, .shelf = {.bytes = 1 << 20}, .transport = GetParam()};
  options.server.open_reads = options.server.accepts = true;
  options.server.token = token_of(1);
  auto store_node = *BlockExchange::create(options);
  auto one = exchange(false), two = exchange(true);
  {
    auto first = open(first_pool_, one, "a model", store_node->port());
    for (size_t i = 0; i < 3; ++i) {
      fill_block(first_pool_, 0, static_cast<uint8_t>(10 + i));
      first->put(chain_[i], 0, true);
    }
  }  // sends what waits
  EXPECT_EQ(store_node->shelf()->stats().blocks, 3);
  auto second = open(second_pool_, two, "a model", store_node->port());
  ASSERT_EQ(found(*second, chain_), 3);
  EXPECT_EQ(load(*second, chain_).blocks, 3);
  EXPECT_TRUE(block_is(second_pool_, into_[2], 12));
  EXPECT_EQ(two->shelf()->stats().blocks, 3) << "what was loaded is offered to others";
  auto stranger = open(second_pool_, two, "another model", store_node->port());
  EXPECT_EQ(found(*stranger, chain_), 0);
  const int port = store_node->port();
  store_node.reset();  // in the middle of things
  EXPECT_EQ(load(*second, chain_).blocks, 0);
  auto late = open(second_pool_, two, "a model", port);
  EXPECT_EQ(found(*late, chain_), 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, NodeStores, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& entry : transports().entries()) names.push_back(entry.info.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace millrace
