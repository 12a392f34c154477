// The engine with a prefix store on a virtual clock, where the overlap of loading and computing is exact.
#include "run/executors/simulated_store.h"

#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 16;

// A step takes 10 ms plus 1 ms per token; a load takes `load` seconds per token.
class LinearCost final : public CostModel {
 public:
  explicit LinearCost(double load) : load_(load) {}
  double step_seconds(const StepShape& shape) const override {
    return 0.010 + 0.001 * static_cast<double>(shape.tokens);
  }
  double swap_seconds(int64_t tokens) const override { return 1e-6 * static_cast<double>(tokens); }
  double load_seconds(int64_t tokens) const override { return load_ * static_cast<double>(tokens); }

 private:
  double load_;
};

class SimulatedStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<EngineCore> make(double load_seconds_per_token, int64_t store_tokens) {
    EngineOptions o;
    o.context = 512;
    o.kv_tokens = 512;
    o.max_streams = 4;
    o.kv_store = SsdStoreFlags{"simulated", store_tokens}.text();
    auto executor = SimulatedExecutor::create(std::make_unique<LinearCost>(load_seconds_per_token), clock_, o);
    EXPECT_TRUE(executor.ok());
    executor_ = executor->get();
    auto core = EngineCore::create(std::move(*executor), o, &clock_);
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    return core.ok() ? std::move(*core) : nullptr;
  }

  static Request request(TokenId first, int64_t prompt, int64_t answer) {
    Request r;
    for (int64_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>(first * 1000 + i));
    r.max_tokens = r.known_tokens = answer;
    return r;
  }

  void run_to_end(EngineCore& core) {
    std::vector<TokenEvent> events;
    while (!core.idle()) {
      if (!core.step(events).empty()) continue;
      if (const int64_t next = executor_->next_move_ns()) clock_.advance_ns(next - clock_.now_ns());
    }
  }

  ManualClock clock_;
  SimulatedExecutor* executor_ = nullptr;
};

TEST_F(SimulatedStoreTest, OthersComputeWhileAStreamLoads) {
  auto core = make(0.0005, 4096);  // 0.5 ms per token: half the time of computing
  for (RequestId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(core->add(id, request(static_cast<TokenId>(id), 320, 1)).ok());  // each evicts the previous one
    run_to_end(*core);
  }
  EXPECT_GT(core->stats().store.blocks, 40);

  std::vector<TokenEvent> events;
  ASSERT_TRUE(core->add(5, request(9, 16, 100)).ok());
  core->step(events);
  ASSERT_TRUE(core->add(6, request(1, 320, 1)).ok());
  const int64_t begin = clock_.now_ns();
  int64_t beside = 0;
  for (;; ++beside) {
    const StepPlan plan = core->step(events);
    ASSERT_TRUE(core->check_blocks().ok());
    ASSERT_EQ(plan.chunks.at(0), (PlannedChunk{5, 17 + beside - 1, 1, true}));
    if (plan.chunks.size() == 1) continue;
    ASSERT_EQ(plan.chunks.at(1), (PlannedChunk{6, 304, 16, true}));  // the block with the last token is computed
    break;
  }
  // 304 tokens take 152 ms to load, which is 13.8 steps of 11 ms.
  EXPECT_EQ(beside, 14);
  EXPECT_GE(clock_.now_ns() - begin, 152'000'000);
  EXPECT_EQ(core->stats().store.hit_tokens, 304);
  EXPECT_EQ(core->stats().store.failed_tokens, 0);
}

TEST_F(SimulatedStoreTest, SlowDisksAreNotUsedAndSmallStoresEvict) {
  auto slow = make(0.0011, 4096);
  for (const TokenId first : {1, 2, 3, 1}) {
    ASSERT_TRUE(slow->add(static_cast<RequestId>(clock_.now_ns()), request(first, 320, 1)).ok());
    run_to_end(*slow);
  }
  EXPECT_EQ(slow->stats().store.hit_tokens, 0);
  EXPECT_EQ(slow->stats().store.passed_tokens, 304);

  auto small = make(0.0001, 4 * kBlock);
  for (const TokenId first : {1, 2, 3, 1}) {
    ASSERT_TRUE(small->add(static_cast<RequestId>(clock_.now_ns()), request(first, 320, 1)).ok());
    run_to_end(*small);
  }
  EXPECT_EQ(small->stats().store.capacity_blocks, 4);
  EXPECT_LE(small->stats().store.blocks, 4);
  EXPECT_LE(small->stats().store.hit_tokens, 4 * kBlock);
}

TEST_F(SimulatedStoreTest, AStreamCancelledWhileLoadingReleasesItsBlocks) {
  auto core = make(0.0005, 4096);
  for (const RequestId id : {1, 2, 3}) {
    ASSERT_TRUE(core->add(id, request(static_cast<TokenId>(id), 320, 1)).ok());
    run_to_end(*core);
  }
  std::vector<TokenEvent> events;
  ASSERT_TRUE(core->add(4, request(1, 320, 1)).ok());
  EXPECT_TRUE(core->step(events).chunks.empty());
  EXPECT_EQ(core->stats().running, 1);
  core->cancel(4);
  core->step(events);
  EXPECT_TRUE(core->idle());
  EXPECT_TRUE(core->check_blocks().ok());
  EXPECT_EQ(core->stats().kv_blocks_free + core->stats().kv_blocks_cached, core->stats().kv_blocks);
  EXPECT_EQ(core->stats().store.hit_tokens, 0);
}

}  // namespace
}  // namespace millrace
