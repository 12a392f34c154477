// The simulated executor's smallest pool, the tokens that it makes, and a store without room.
#include <gtest/gtest.h>

#include "run/executors/simulated_executor.h"
#include "run/executors/simulated_store.h"
#include "run/executors/stepped_stream_test.h"

namespace millrace {
namespace {

class FreeCost final : public CostModel {
 public:
  double step_seconds(const StepShape&) const override { return 1; }
  double swap_seconds(int64_t) const override { return 1; }
};

std::unique_ptr<SimulatedExecutor> simulated(ManualClock& clock, int64_t kv_tokens) {
  EngineOptions o;
  o.context = 100;
  o.block_tokens = 16;
  o.kv_tokens = kv_tokens;
  auto made = SimulatedExecutor::create(std::make_unique<FreeCost>(), clock, o);
  EXPECT_TRUE(made.ok());
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(SimulatedEdges, APoolOfOneToken) {
  ManualClock clock;
  for (const auto& [tokens, blocks] : {std::pair(0, 7), {1, 1}, {16, 1}, {17, 2}})
    EXPECT_EQ(simulated(clock, tokens)->home().kv().total_blocks(), blocks) << tokens;
}

// By Philox 4x32-10 with the seed as key and position and stream as counter: the same in every version, so that
// simulations can be compared.
TEST(SimulatedEdges, TokensAreThoseOfThePublishedGenerator) {
  ManualClock clock;
  auto executor = simulated(clock, 100);
  testing::SteppedStream stream;
  stream.sequence.id = 3;
  stream.sequence.request.sampling.seed = 11;
  stream.sequence.request.known_tokens = 2;
  stream.sequence.tokens = {1, 2};
  stream.sequence.prompt_tokens = 2;
  std::vector<TokenId> tokens;
  std::vector<bool> ended;
  for (int i = 0; i < 3; ++i) {
    TokenEvent event;
    ended.push_back(*executor->chooser().choose(stream.ref(), 0, event));
    tokens.push_back(event.token);
    stream.sequence.tokens.push_back(event.token);
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{95360, 344418, 634305}));
  EXPECT_EQ(ended, (std::vector<bool>{false, true, true}));
}

TEST(SimulatedEdges, AStoreWithoutRoomDropsBlocks) {
  ManualClock clock;
  FreeCost cost;
  int64_t busy = 0;
  const std::vector<TokenId> tokens(48, 7);
  const auto chain = prefix_chain(tokens, 16, 0);
  auto none = make_simulated_store(clock, cost, 0, 16, busy), one = make_simulated_store(clock, cost, 1, 16, busy);
  for (const ChainLink& link : chain) none->put(link, 0, false), one->put(link, 0, true);
  EXPECT_EQ(none->stats().dropped_blocks, 3);
  EXPECT_EQ(none->stats().written_blocks, 0);
  EXPECT_EQ(none->stats().blocks, 0);
  EXPECT_EQ(none->find(chain), 0);
  EXPECT_EQ(one->stats().dropped_blocks, 0);
  EXPECT_EQ(one->stats().written_blocks, 3);
  EXPECT_EQ(one->stats().blocks, 1);
}

}  // namespace
}  // namespace millrace
