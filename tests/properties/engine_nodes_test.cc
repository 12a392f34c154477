// Streams whose prompts another node computed, or whose blocks a store node keeps that evicts them: a stream's results
// have the same bits as alone, for every transport, with and without recurrent layers, and every block is accounted for
// after every step.
#include <fmt/format.h>

#include "kv/transfer/block_exchange.h"
#include "kv/transfer/transport.h"
#include "properties/store_runs.h"

namespace millrace {
namespace {

using namespace testing;

// Parameter: transport, model, and how many of 90 prompt tokens can move.
struct NodeCase {
  std::string transport, model;
  int64_t moves;
};

class EngineNodes : public ::testing::TestWithParam<NodeCase>, public StoreRuns {
 protected:
  EngineNodes() : StoreRuns(31) {}
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), *select_isa());
    ASSERT_TRUE(model_);
  }
  static std::shared_ptr<BlockExchange> node(bool keeps, bool is_store = false, int64_t bytes = 8 << 20) {
    BlockExchange::Options options{.keeps = keeps, .shelf = {.bytes = bytes}, .transport = GetParam().transport};
    options.server.open_reads = options.server.accepts = is_store;
    auto made = BlockExchange::create(options);
    EXPECT_TRUE(made.ok());
    return *made;
  }
  static EngineOptions options_on(const BlockExchange& exchange, int store_port = 0) {
    EngineOptions o = options(1, 48, 8);
    o.state_stride = 16;
    o.kv_store = fmt::format("node:exchange={},transport={},deadline_ms=20000", exchange.name(), GetParam().transport);
    if (store_port > 0) o.kv_store += fmt::format(",host=127.0.0.1,port={}", store_port);
    return o;
  }
  StoreAnswer answer(EngineCore& core, const Request& request) {
    EXPECT_TRUE(core.add(++id_, request).ok());
    StoreAnswer out;
    std::vector<TokenEvent> events;
    while (!core.idle()) {
      core.step(events);
      EXPECT_TRUE(core.check_blocks().ok());
    }
    for (const auto& event : events) take(out, event);
    return out;
  }
  // Computes a prompt for a router, as a prefill node does, and returns the ticket.
  BlockTicket prefill(EngineCore& core, BlockExchange& exchange, Request request) {
    request.max_tokens = 1;
    answer(core, request);
    std::vector<PrefixKey> keys;
    for (const ChainLink& link : prefix_chain(std::span(request.prompt).first(request.prompt.size() - 1), 8, 0))
      keys.push_back(link.key);
    auto ticket = exchange.issue(keys);
    EXPECT_TRUE(ticket);
    ticket->host = "127.0.0.1";
    return *ticket;
  }
  void expect_alone(const StoreAnswer& found, const Request& request) {
    EXPECT_EQ(found.tokens, alone(request).tokens);
    EXPECT_EQ(found.logprobs, alone(request).logprobs);
  }

  RequestId id_ = 0;
};

// Loading seems to take far longer than computing, and blocks move all the same: the router has decided.
TEST_P(EngineNodes, APromptThatAnotherNodeComputedContinuesWithTheSameBits) {
  const Request request = make_request(1, 90, 12, model_->info().vocab);
  auto from = node(true), to = node(false);
  auto first = open(options_on(*from), 9.0), second = open(options_on(*to), 9.0);
  to->announce(prefill(*first, *from, request));
  expect_alone(answer(*second, request), request);
  EXPECT_EQ(second->stats().store.hit_tokens, GetParam().moves);
  EXPECT_EQ(second->stats().prompt_tokens, 90 - GetParam().moves);
  Request other = request;
  other.tenant = "other";
  expect_alone(answer(*second, other), other);
  EXPECT_EQ(second->stats().store.hit_tokens, GetParam().moves) << "tenants share nothing";
}

TEST_P(EngineNodes, ANodeThatIsGoneBeforeThePullIsNotMissed) {
  const Request request = make_request(1, 90, 12, model_->info().vocab);
  auto to = node(false);
  auto second = open(options_on(*to), 9.0);
  {
    auto from = node(true);
    auto first = open(options_on(*from), 9.0);
    to->announce(prefill(*first, *from, request));
  }
  expect_alone(answer(*second, request), request);
  EXPECT_EQ(second->stats().store.hit_tokens, 0);
}

// The store has room for a part of the blocks only, and each engine starts with an empty cache.
TEST_P(EngineNodes, StreamsOverAStoreNodeHaveTheSameBitsAsAlone) {
  auto store = node(true, true, 512 << 10);
  for (int round = 0; round < 4; ++round) {
    auto exchange = node(round % 2 == 1);
    EngineOptions o = options_on(*exchange, store->port());
    o.max_streams = 3;
    o.kv_tokens = 208;
    o.policy = "fcfs:reserve=prompt";
    auto core = open(o, 0.001);
    ASSERT_TRUE(core);
    run(*core, [](int64_t) {});
    if (HasFatalFailure()) return;
    const ShelfStats shelf = store->shelf()->stats();
    EXPECT_EQ(shelf.free + shelf.held + shelf.idle, shelf.capacity);
  }
  EXPECT_GT(hits_, 100);
}

std::vector<NodeCase> node_cases() {
  std::vector<NodeCase> cases;
  for (const auto& entry : transports().entries()) {
    cases.push_back({entry.info.name, "smollm3", 88});
    cases.push_back({entry.info.name, "falcon_h1", 80});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Transports, EngineNodes, ::testing::ValuesIn(node_cases()),
                         [](const auto& test) { return test.param.transport + "_" + test.param.model; });

}  // namespace
}  // namespace millrace
