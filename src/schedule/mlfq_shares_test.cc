// Skip-join multi-level feedback queue: shares, victims and early leavers by level. A token takes half a second; level
// i has a quantum of 2^i seconds, so that prompts of 2, 4, 8 and 16 tokens join the levels in turn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

class SkipJoinShares : public ::testing::Test {
 protected:
  SkipJoinShares() : desk("skip_join_mlfq:quantum_ms=1000,levels=4,headroom=0.5") {
    cost.step = 0, cost.token = 0.5;
    desk.cost = &cost;
    desk.limits.total_blocks = 10;
  }
  SchedulerPolicy& policy() { return desk.planner->policy(); }
  void look() {
    std::vector<const Sequence*> queue;
    policy().rank(queue, desk.view());
  }
  std::string shares(int64_t budget) {
    std::vector<Share> out;
    policy().share(desk.view(), budget, out);
    std::string text;
    for (const Share& share : out)
      text += fmt::format("{}{}:{}", text.empty() ? "" : " ", share.stream->id, share.tokens);
    return text;
  }
  RequestId victim(const Sequence& wanting) {
    const Sequence* found = policy().victim(desk.view(), wanting);
    return found ? found->id : 0;
  }
  RequestId early() {
    const Sequence* found = policy().leave_early(desk.view());
    return found ? found->id : 0;
  }
  // Joins with a prompt of `tokens` and holds a block.
  Sequence& resident(RequestId id, int64_t tokens) { return desk.hold(desk.run(id, tokens, 0, 0), 1); }

  Desk desk;
  FixedCost cost;
};

TEST_F(SkipJoinShares, LowerLevelsRunFirstAndDecodesGetOneToken) {
  desk.run(1, 16, 0, 0), desk.run(2, 8, 1, 8), desk.run(3, 3, 0, 0), desk.run(4, 8, 1, 8), desk.run(5, 4, 0, 0);
  EXPECT_EQ(shares(100), "2:1 4:1 3:3 5:4 1:16");
  EXPECT_EQ(shares(100), "2:1 4:1 3:3 5:4 1:16") << "the same again";
  EXPECT_EQ(shares(15), "2:1 4:1 3:3 5:4 1:6");
  EXPECT_EQ(shares(9), "2:1 4:1 3:3 5:4");
  EXPECT_EQ(shares(7), "2:1 4:1 3:3 5:2");
  EXPECT_EQ(shares(2), "2:1 4:1");
  EXPECT_EQ(shares(1), "2:1 4:1") << "fewer than the decodes need: prompts get nothing";
  desk.limits.max_streams = 3;
  EXPECT_EQ(shares(100), "2:1 4:1 3:3");
  desk.streams[1]->phase = StreamPhase::swapping_out;
  EXPECT_EQ(shares(100), "4:1 3:3 5:4") << "2 is on its way out";
}

TEST_F(SkipJoinShares, DecodesBehindAPromptLoseNoTokens) {
  desk.run(1, 4, 0, 0), desk.run(2, 1, 1, 1), desk.run(3, 4, 0, 0);
  look();
  for (int i = 0; i < 20; ++i) desk.ran(*desk.streams[1], 1, true, 0.5);  // to the last level
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
  EXPECT_EQ(victim(first), 4u) << "on one level the later, for one that runs";
  EXPECT_EQ(victim(fourth), 0u);
  Sequence &small = desk.wait(5, 4), &like = desk.wait(6, 8), &large = desk.wait(7, 16);
  small.arrival = like.arrival = large.arrival = 0;
  look();
  EXPECT_EQ(victim(small), 4u);
  EXPECT_EQ(victim(like), 0u) << "not for one of the same level that waits";
  EXPECT_EQ(victim(large), 0u);
}

TEST_F(SkipJoinShares, LastInOrderIsSwappedOutBeforeMemoryRunsOut) {
  resident(1, 8), resident(2, 8), resident(3, 4);
  desk.free_blocks = 4;
  look();
  EXPECT_EQ(early(), 0u) << "no stream waits";
  desk.wait(10, 16), desk.wait(11, 4);
  look();
  EXPECT_EQ(early(), 2u);
  desk.free_blocks = 5;
  EXPECT_EQ(early(), 0u) << "half of the blocks are free";
  desk.free_blocks = 4;
  desk.streams[1]->phase = StreamPhase::swapping_out;
  EXPECT_EQ(early(), 1u) << "2 is on its way already";
  desk.streams[0]->kv.blocks.clear();
  EXPECT_EQ(early(), 0u) << "1 holds nothing, 3 stands where the first waiting one does";
  desk.wait(12, 2);
  look();
  EXPECT_EQ(early(), 3u);
}

}  // namespace
}  // namespace millrace
