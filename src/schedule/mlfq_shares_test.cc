// Skip-join multi-level feedback queue: shares, victims and early swap-outs by level. A token takes half a second;
// level i has a quantum of 2^i seconds, so that prompts of 2, 4, 8 and 16 tokens join levels 0 to 3.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

class SkipJoinShares : public ::testing::Test {
 protected:
  SkipJoinShares() : harness("skip_join_mlfq:quantum_ms=1000,levels=4,headroom=0.5") {
    cost.step = 0, cost.token = 0.5;
    harness.cost = &cost;
    harness.limits.total_blocks = 10;
  }
  SchedulerPolicy& policy() { return harness.planner->policy(); }
  void look() {
    std::vector<const Sequence*> queue;
    policy().rank(queue, harness.view());
  }
  std::string shares(int64_t budget) {
    std::vector<Share> out;
    policy().share(harness.view(), budget, out);
    std::string text;
    for (const Share& share : out)
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", share.stream->id, share.tokens);
    return text;
  }
  RequestId victim(const Sequence& wanting) {
    const Sequence* found = policy().victim(harness.view(), wanting);
    return found ? found->id : 0;
  }
  RequestId early() {
    const Sequence* found = policy().leave_early(harness.view());
    return found ? found->id : 0;
  }
  // A stream with a prompt of `tokens` that holds a block.
  Sequence& resident(RequestId id, int64_t tokens) { return harness.hold(harness.run(id, tokens, 0, 0), 1); }

  PlannerHarness harness;
  FixedCost cost;
};

TEST_F(SkipJoinShares, LowerLevelsRunFirstAndDecodesGetOneToken) {
  harness.run(1, 16, 0, 0), harness.run(2, 8, 1, 8), harness.run(3, 3, 0, 0), harness.run(4, 8, 1, 8),
      harness.run(5, 4, 0, 0);
  EXPECT_EQ(shares(100), "2:1 4:1 3:3 5:4 1:16");
  EXPECT_EQ(shares(100), "2:1 4:1 3:3 5:4 1:16") << "the same again";
  EXPECT_EQ(shares(15), "2:1 4:1 3:3 5:4 1:6");
  EXPECT_EQ(shares(9), "2:1 4:1 3:3 5:4");
  EXPECT_EQ(shares(7), "2:1 4:1 3:3 5:2");
  EXPECT_EQ(shares(2), "2:1 4:1");
  EXPECT_EQ(shares(1), "2:1 4:1") << "fewer than the decodes need: prompts get nothing";
  harness.limits.max_streams = 3;
  EXPECT_EQ(shares(100), "2:1 4:1 3:3");
  harness.streams[1]->phase = StreamPhase::swapping_out;
  EXPECT_EQ(shares(100), "4:1 3:3 5:4") << "2 is being swapped out";
}

TEST_F(SkipJoinShares, DecodesBehindAPromptLoseNoTokens) {
  harness.run(1, 4, 0, 0), harness.run(2, 1, 1, 1), harness.run(3, 4, 0, 0);
  look();
  for (int i = 0; i < 20; ++i) harness.ran(*harness.streams[1], 1, true, 0.5);  // to the last level
  EXPECT_EQ(shares(7), "1:4 3:2 2:1");
}

TEST_F(SkipJoinShares, VictimsAreFromTheLastLevel) {
  Sequence& first = resident(1, 8);
  Sequence& second = resident(2, 2);
  Sequence& third = resident(3, 2);
  look();
  EXPECT_EQ(victim(second), 1u);
  EXPECT_EQ(victim(third), 1u);
  EXPECT_EQ(victim(first), 0u);
  Sequence& fourth = resident(4, 8);
  look();
  EXPECT_EQ(victim(first), 4u) << "within a level the later one, for a running stream";
  EXPECT_EQ(victim(fourth), 0u);
  Sequence &small = harness.wait(5, 4), &like = harness.wait(6, 8), &large = harness.wait(7, 16);
  small.arrival = like.arrival = large.arrival = 0;
  look();
  EXPECT_EQ(victim(small), 4u);
  EXPECT_EQ(victim(like), 0u) << "not for a waiting stream of the same level";
  EXPECT_EQ(victim(large), 0u);
}

TEST_F(SkipJoinShares, LastInOrderIsSwappedOutBeforeMemoryRunsOut) {
  resident(1, 8), resident(2, 8), resident(3, 4);
  harness.free_blocks = 4;
  look();
  EXPECT_EQ(early(), 0u) << "no stream waits";
  harness.wait(10, 16), harness.wait(11, 4);
  look();
  EXPECT_EQ(early(), 2u);
  harness.free_blocks = 5;
  EXPECT_EQ(early(), 0u) << "half of the blocks are free";
  harness.free_blocks = 4;
  harness.streams[1]->phase = StreamPhase::swapping_out;
  EXPECT_EQ(early(), 1u) << "2 is already being swapped out";
  harness.streams[0]->kv.blocks.clear();
  EXPECT_EQ(early(), 0u) << "1 holds nothing, 3 is on the level of the first waiting stream";
  harness.wait(12, 2);
  look();
  EXPECT_EQ(early(), 3u);
}

}  // namespace
}  // namespace millrace
