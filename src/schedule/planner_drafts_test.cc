// Drafted tokens in a plan: they fill what the other streams leave of a step, and take nothing from them.
#include <gtest/gtest.h>

#include <map>

#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

class PlannedDrafts : public ::testing::Test {
 protected:
  // Holds one block of 16 tokens, of which it has 15, and drafts `drafted` tokens.
  Sequence& decode(RequestId id, int64_t drafted) {
    Sequence& s = harness.hold(harness.run(id, 10, 5, 14, 64), 1);
    s.draft.tokens.assign(static_cast<size_t>(drafted), 1);
    return s;
  }
  PlannerHarness harness{"fcfs:reserve=prompt"};
};

TEST_F(PlannedDrafts, FollowTheStreamsLastToken) {
  decode(1, 4), decode(2, 0), decode(3, 2);
  EXPECT_EQ(harness.chunks(), "1:[14+5]*4 2:[14+1]* 3:[14+3]*2");
}

TEST_F(PlannedDrafts, FillWhatIsLeftOfTheStepOnly) {
  decode(1, 4), decode(2, 4);
  harness.hold(harness.run(3, 20, 0, 0), 2);
  for (const auto& [tokens, plan] : std::map<int64_t, std::string>{{32, "1:[14+5]*4 2:[14+5]*4 3:[0+20]*"},
                                                                   {28, "1:[14+5]*4 2:[14+3]*2 3:[0+20]*"},
                                                                   {24, "1:[14+3]*2 2:[14+1]* 3:[0+20]*"},
                                                                   {22, "1:[14+1]* 2:[14+1]* 3:[0+20]*"},
                                                                   {12, "1:[14+1]* 2:[14+1]* 3:[0+10]"}}) {
    harness.limits.batch_tokens = tokens;
    EXPECT_EQ(harness.chunks(), plan) << tokens;
  }
  harness.limits.batch_tokens = 512;
  harness.limits.outputs = 6;
  EXPECT_EQ(harness.chunks(), "1:[14+4]*3 2:[14+1]* 3:[0+20]*");
}

TEST_F(PlannedDrafts, TakeSpareBlocksButNoVictims) {
  decode(1, 4), decode(2, 4), decode(3, 4);
  harness.free_blocks = 0;
  EXPECT_EQ(harness.chunks(), "1:[14+2]*1 2:[14+2]*1 3:[14+2]*1") << "to the end of their blocks";
  harness.free_blocks = 2;
  EXPECT_EQ(harness.chunks(), "1:[14+5]*4 2:[14+5]*4 3:[14+2]*1");
  Sequence& full = harness.hold(harness.run(4, 10, 7, 16, 64), 1);  // its own token wants a block
  full.draft.tokens.assign(4, 1);
  EXPECT_EQ(harness.chunks(), "1:[14+5]*4 2:[14+2]*1 3:[14+2]*1 4:[16+5]*4");
  harness.free_blocks = 1;
  EXPECT_EQ(harness.chunks(), "1:[14+2]*1 2:[14+2]*1 3:[14+2]*1 4:[16+5]*4");
}

TEST_F(PlannedDrafts, UseBlocksThatTheStreamIsPromised) {
  decode(1, 40).kv.reserved_blocks = 3;
  harness.free_blocks = 2;  // both are promised
  EXPECT_EQ(harness.chunks(), "1:[14+34]*33");
}

TEST_F(PlannedDrafts, BelongToStreamsThatSampleTheirNextToken) {
  Sequence& prompt = harness.hold(harness.run(1, 40, 0, 39, 64), 3);  // only the last token of its prompt is left
  prompt.draft.tokens.assign(4, 1);
  decode(2, 4).held_back = true;
  decode(3, 4).phase = StreamPhase::loading;
  EXPECT_EQ(harness.chunks(), "1:[39+1]*");
}

}  // namespace
}  // namespace millrace
