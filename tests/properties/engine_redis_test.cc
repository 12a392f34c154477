// Streams whose prompts are partly loaded from a Redis server that is slow, full, lies, or is killed in the middle of a
// load: a stream's results have the same bits as alone, and every block is accounted for after every step.
#include "kv/tiers/block_image.h"
#include "kv/tiers/fake_redis_test.h"
#include "kv/tiers/redis_store.h"
#include "properties/redis_process.h"
#include "properties/store_runs.h"

namespace millrace {
namespace {

using namespace testing;

// Parameter: seconds that a load is expected to take. If far less than a chunk, streams run at once and wait for each
// layer; else they wait for the whole load.
class EngineRedis : public ::testing::TestWithParam<double>, public StoreRuns {
 protected:
  EngineRedis() : StoreRuns(static_cast<uint64_t>(GetParam()) + 50) {}
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), *select_isa());
    ASSERT_TRUE(model_);
  }
  static EngineOptions over(int port, int64_t deadline_ms = 20'000) {
    EngineOptions o = tight_options();
    o.kv_store = fmt::format("redis:port={},deadline_ms={}", port, deadline_ms);
    return o;
  }
  // The answer to the request, by an engine that is alone.
  StoreAnswer answer(EngineCore& core, const Request& request, RequestId id = 1) {
    EXPECT_TRUE(core.add(id, request).ok());
    StoreAnswer out;
    std::vector<TokenEvent> events;
    while (!core.idle()) core.step(events);
    for (const auto& event : events) take(out, event);
    return out;
  }
  void expect_same(const StoreAnswer& found, const Request& request) {
    EXPECT_EQ(found.tokens, alone(request).tokens);
    EXPECT_EQ(found.logprobs, alone(request).logprobs);
  }
};

TEST_P(EngineRedis, StreamsHaveTheSameBitsAsAlone) {
  std::atomic<int64_t> loads = 0, writes = 0, faults = 0;  // of blocks, in the rounds with faults
  FakeRedis server;
  // Every third load and every seventh write of a block fails, each time in another way.
  const auto fail = [&](const FakeRedis::Command& command, const std::string& reply) {
    const bool fails = command[0] == "GETRANGE" ? ++loads % 3 == 0 : command[0] == "SET" && ++writes % 7 == 0;
    if (!fails) return FakeRedis::Answer{reply};
    std::string damaged = reply;
    damaged[damaged.size() / 2] ^= 4;
    switch (faults++ % 4) {
      case 0: return FakeRedis::Answer{damaged};
      case 1: return FakeRedis::Answer{"-OOM command not allowed\r\n"};
      case 2: return FakeRedis::Answer{reply.substr(0, reply.size() / 2), true};
      default: return FakeRedis::Answer{"", true};
    }
  };
  for (int round = 0; round < 6; ++round) {
    auto core = open(over(server.port(), round % 2 ? 200 : 20'000), GetParam());
    ASSERT_TRUE(core);
    if (round % 2)
      server.answer(fail);
    else
      server.answer({});
    run(*core, [](int64_t) {});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(hits_, 500);
  EXPECT_GT(failed_, 0);
}

// Two engines at the same time: the second one loads what the first one has computed, before that one ends.
TEST_P(EngineRedis, TheNextEngineSharesAPrefix) {
  if (RedisProcess::program().empty()) GTEST_SKIP() << "redis-server is not installed";
  RedisProcess server;
  ASSERT_TRUE(server.started());
  const Request request = make_request(1, 90, 5, model_->info().vocab);
  auto first = open(over(server.port()), GetParam());
  expect_same(answer(*first, request), request);
  EXPECT_EQ(first->stats().store.hit_tokens, 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (first->stats().store.written_bytes == 0 && std::chrono::steady_clock::now() < end)
    answer(*first, make_request(2, 20, 1, model_->info().vocab), 2);
  auto second = open(over(server.port()), GetParam());
  expect_same(answer(*second, request), request);
  EXPECT_EQ(second->stats().store.hit_tokens, 88);
  EXPECT_EQ(second->stats().prompt_tokens, 2);
  Request other = request;
  other.tenant = "other";
  expect_same(answer(*second, other, 2), other);
  EXPECT_EQ(second->stats().store.hit_tokens, 88) << "tenants share nothing";
}

// The server is killed when it has sent two and a half of eleven blocks.
TEST_P(EngineRedis, AServerKilledInTheMiddleOfALoad) {
  if (RedisProcess::program().empty()) GTEST_SKIP() << "redis-server is not installed";
  RedisProcess server;
  ASSERT_TRUE(server.started());
  const Request request = make_request(1, 90, 5, model_->info().vocab);
  int64_t block_bytes = 0;
  {
    auto core = open(over(server.port()), GetParam());
    expect_same(answer(*core, request), request);
    block_bytes = ImageShape::of(core->kv().layout()).image_bytes();
  }
  constexpr int64_t kGreeting = 7, kFound = 11 * 4;  // +PONG, and :1 for each block
  Relay relay(server.port(), kGreeting + kFound + 5 * block_bytes / 2);
  auto core = open(over(relay.port()), GetParam());
  ASSERT_TRUE(core->add(1, request).ok());
  std::thread killer([&] {
    for (int i = 0; i < 10'000 && !relay.holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.kill();
  });
  StoreAnswer found;
  std::vector<TokenEvent> events;
  while (!core->idle()) {
    core->step(events);
    EXPECT_TRUE(core->check_blocks().ok());
  }
  killer.join();
  EXPECT_TRUE(relay.holds());
  for (const auto& event : events) take(found, event);
  expect_same(found, request);
  const KvStoreStats store = core->stats().store;
  EXPECT_GT(store.failed_tokens, 0);
  EXPECT_LE(store.hit_tokens, 16);
  EXPECT_EQ(store.late_loads, 0) << "it did not wait for the deadline";
  EXPECT_FALSE(store.connected);
  expect_same(answer(*core, request, 2), request);  // and it goes on without the server
}

// A server that keeps the connection and stops answering costs the deadline, once.
TEST_P(EngineRedis, AServerThatStallsInTheMiddleOfALoad) {
  FakeRedis server;
  const Request request = make_request(1, 90, 5, model_->info().vocab);
  {
    auto core = open(over(server.port()), GetParam());
    expect_same(answer(*core, request), request);
  }
  server.answer([loads = 0](const FakeRedis::Command& command, const std::string& reply) mutable {
    return FakeRedis::Answer{command[0] == "GETRANGE" && ++loads > 3 ? "" : reply};
  });
  auto core = open(over(server.port(), 50), GetParam());
  expect_same(answer(*core, request), request);
  EXPECT_GT(core->stats().store.failed_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Loads, EngineRedis, ::testing::Values(0.001, 9.0),
                         [](const auto& test) { return std::string(test.param < 1 ? "JoinEarly" : "AreAwaited"); });

}  // namespace
}  // namespace millrace
