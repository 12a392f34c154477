// Bounds of the live-lock watch: each count at its last tolerated value and one above it, with the message.
#include <gtest/gtest.h>

#include "schedule/livelock.h"

namespace millrace {
namespace {

class Watch : public ::testing::Test {
 protected:
  void queued(int times) {
    for (int i = 0; i < times; ++i) watch.observe({ScheduleEvent::Kind::queued, &stream});
  }
  void left(int times) {
    for (int i = 0; i < times; ++i) watch.observe({ScheduleEvent::Kind::left, &stream});
  }
  void kept(int64_t tokens) { watch.observe({.kind = ScheduleEvent::Kind::ran, .stream = &stream, .kept = tokens}); }
  void lost(int64_t tokens) {
    watch.observe({.kind = ScheduleEvent::Kind::preempted, .stream = &stream, .lost = tokens});
  }
  // `last` preemptions are tolerated; one more is a live-lock.
  void expect_turns(int last, const std::string& why) {
    for (int i = 0; i < last; ++i) lost(0);
    EXPECT_FALSE(watch.locked()) << why;
    lost(0);
    EXPECT_TRUE(watch.locked()) << why;
    EXPECT_EQ(watch.why(), why);
  }
  void empty_steps(int count) {
    for (int i = 0; i < count; ++i) watch.step(false, false);
  }

  LivelockWatch watch;
  Sequence stream;
};

TEST_F(Watch, FewStreamsAllowSixtyFourPreemptions) {
  queued(16);
  expect_turns(64, "16 streams were preempted 65 times without a new token");
}

TEST_F(Watch, ManyStreamsAllowFourPreemptionsEach) {
  queued(17);
  expect_turns(68, "17 streams were preempted 69 times without a new token");
}

TEST_F(Watch, EndedStreamIsProgress) {
  queued(100);
  for (int i = 0; i < 400; ++i) lost(0);
  left(1);
  expect_turns(400, "100 streams were preempted 401 times without a new token");
}

TEST_F(Watch, NewTokenIsProgressAndRemovedStreamsDoNotCount) {
  queued(100);
  left(50);
  for (int i = 0; i < 400; ++i) lost(0);
  kept(1);
  expect_turns(200, "50 streams were preempted 201 times without a new token");
}

TEST_F(Watch, EmptyStepsWithoutOpenStreamsAreNoLivelock) {
  queued(3);
  left(3);
  empty_steps(1000);
  EXPECT_FALSE(watch.locked());
  queued(2);
  left(1);
  empty_steps(64);
  EXPECT_FALSE(watch.locked());
  empty_steps(1);
  EXPECT_TRUE(watch.locked());
  EXPECT_EQ(watch.why(), "nothing ran in 65 steps though 1 streams are open");
}

TEST_F(Watch, RestartKeepsTheOpenStreams) {
  queued(20);
  empty_steps(65);
  watch.begin_anew();
  EXPECT_FALSE(watch.locked());
  empty_steps(65);
  EXPECT_EQ(watch.why(), "nothing ran in 65 steps though 20 streams are open");
  watch.begin_anew();
  expect_turns(80, "20 streams were preempted 81 times without a new token");
}

TEST_F(Watch, LossesAboveEightTimesNewTokensAreALivelock) {
  queued(1);
  kept(125'000);
  lost(1'000'007);
  EXPECT_FALSE(watch.locked());
  lost(1);
  EXPECT_TRUE(watch.locked());
  EXPECT_EQ(watch.why(), "1000008 tokens were lost to preemptions while 125000 were computed for the first time");
}

TEST_F(Watch, LossesUpToAMillionAreTolerated) {
  queued(1);
  lost(1'000'000);
  EXPECT_FALSE(watch.locked());
  lost(1);
  EXPECT_TRUE(watch.locked());
  EXPECT_EQ(watch.why(), "1000001 tokens were lost to preemptions while 0 were computed for the first time");
}

TEST_F(Watch, BothCountsAreHalvedAboveTenMillionNewTokens) {
  queued(1);
  kept(10'000'000);
  lost(80'000'008);
  EXPECT_EQ(watch.why(), "80000008 tokens were lost to preemptions while 10000000 were computed for the first time");
  kept(1);
  EXPECT_FALSE(watch.locked());  // 40,000,004 lost, 5,000,000 new
  lost(4);
  EXPECT_TRUE(watch.locked());
  EXPECT_EQ(watch.why(), "40000008 tokens were lost to preemptions while 5000000 were computed for the first time");
}

}  // namespace
}  // namespace millrace
