// The load-stabilizing schedule against the formulas of the paper and against every step counted one by one.
#include "schedule/stable_load.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

struct CountedStream {
  int64_t start, length, steps;
};

int64_t counted_sum(const std::vector<CountedStream>& streams, int64_t at) {
  int64_t sum = 0;
  for (const CountedStream& s : streams)
    if (s.start <= at && at <= s.start + s.steps) sum += s.length + at - s.start;
  return sum;
}

int64_t counted_peak(const std::vector<CountedStream>& streams, int64_t from) {
  int64_t last = 0, peak = 0;
  for (const CountedStream& s : streams) last = std::max(last, s.start + s.steps);
  for (int64_t at = from; at <= last; ++at) peak = std::max(peak, counted_sum(streams, at));
  return peak;
}

// B F / S streams every F steps: the sum is at most B (S + F) / 2, half of B S and a bit, and reaches it.
TEST(StableLoad, GroupsAtIntervalsHaveThePapersPeak) {
  constexpr int64_t kStreams = 64, kTokens = 128;
  for (const int64_t interval : {2, 8, 16, 32, 64, 128}) {
    std::vector<CountedStream> streams;
    const auto group = static_cast<int64_t>(StableLoad::group_streams(kStreams, kTokens, interval));
    EXPECT_EQ(group, kStreams * interval / kTokens);
    // A stream has 1 token at its first step and kTokens at its last one.
    for (int64_t start = 0; start < 10 * kTokens; start += interval)
      for (int64_t i = 0; i < group; ++i) streams.push_back({start, 1, kTokens - 1});
    int64_t peak = 0;
    for (int64_t at = 2 * kTokens; at < 8 * kTokens; ++at) peak = std::max(peak, counted_sum(streams, at));
    EXPECT_DOUBLE_EQ(static_cast<double>(peak), StableLoad::steady_sum(kStreams, kTokens, interval)) << interval;
  }
  EXPECT_DOUBLE_EQ(StableLoad::steady_sum(kStreams, kTokens, kTokens), kStreams * kTokens);  // all at once
}

// Streams that start at first_start() never exceed the limit, and none of them could have started earlier.
TEST(StableLoad, FirstStartIsTheEarliestThatFits) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    uint64_t draws = 0;
    const auto draw = [&](int64_t most) {
      return static_cast<int64_t>(philox_uniform(seed, 3, draws++) * static_cast<double>(most));
    };
    StableLoad load(200 + draw(200));
    std::vector<CountedStream> streams;
    for (int i = 0; i < 12; ++i) {
      const int64_t length = 1 + draw(60), steps = 1 + draw(60);
      const auto fits = [&](int64_t start) {
        auto with = streams;
        with.push_back({start, length, steps});
        int64_t peak = 0;
        for (int64_t at = start; at <= start + steps; ++at) peak = std::max(peak, counted_sum(with, at));
        return peak <= load.limit();
      };
      int64_t expected = 0;
      while (!fits(expected)) ++expected;
      EXPECT_EQ(load.first_start(length, steps), expected) << "seed " << seed << " stream " << i;
      EXPECT_TRUE(load.fits(expected, length, steps));
      load.add(expected, length, steps);
      streams.push_back({expected, length, steps});
      EXPECT_EQ(load.sum_at(expected + 1), counted_sum(streams, expected + 1));
      EXPECT_LE(counted_peak(streams, 0), load.limit());
    }
  }
}

// With equal streams: R = max over the ends E of E - (limit - sum at E).
TEST(StableLoad, FirstStartOfEqualStreamsFollowsFromTheSums) {
  StableLoad load(150);
  load.add(0, 0, 100);
  EXPECT_EQ(load.first_start(0, 100), 50);  // 100 - (150 - 100)
  load.add(50, 0, 100);
  EXPECT_EQ(load.first_start(0, 100), 100);  // 100 - (150 - 150), and 150 - (150 - 100)
}

TEST(StableLoad, AStreamThatNeverFitsRunsBehindAllOthers) {
  StableLoad load(50);
  EXPECT_EQ(load.first_start(60, 10), 0);
  load.add(0, 10, 30);
  EXPECT_FALSE(load.fits(31, 60, 10));
  EXPECT_EQ(load.first_start(60, 10), 31);
}

using testing::PlannerHarness;

TEST(LoadStabilizing, AdmitsWhatStaysBelowTheLimit) {
  const char* policy = "load_stabilizing:load=150,interval=50";
  {
    PlannerHarness harness(policy);
    harness.wait(1, 10, 0, 60), harness.wait(2, 10, 0, 60), harness.wait(3, 10, 0, 60);
    EXPECT_EQ(harness.places(), "admit 1 2;");  // three would have 180 tokens at their end
  }
  {
    PlannerHarness harness(policy);
    harness.run(1, 10, 20, 29, 60), harness.run(2, 10, 20, 29, 60), harness.wait(3, 10, 0, 60);
    EXPECT_EQ(harness.places(), "");  // 60 + 60 + 40 in 30 steps
  }
  {
    PlannerHarness harness(policy);
    harness.run(1, 10, 30, 39, 60), harness.run(2, 10, 20, 29, 60), harness.wait(3, 10, 0, 60);
    EXPECT_EQ(harness.places(), "admit 3;");  // 60 + 50 + 30 in 20 steps, and 60 + 40 in 30
  }
  {
    PlannerHarness harness(policy);
    harness.run(1, 10, 40, 49, 60), harness.wait(3, 10, 0, 60), harness.wait(4, 100, 0, 141), harness.wait(5, 1, 0, 2);
    EXPECT_EQ(harness.places(), "admit 3;");  // 5 would fit, but not overtake
  }
}

TEST(LoadStabilizing, AStreamLongerThanTheLimitRunsAlone) {
  PlannerHarness harness("load_stabilizing:load=20");
  harness.wait(1, 30, 0, 40), harness.wait(2, 2, 0, 4);
  EXPECT_EQ(harness.places(), "admit 1;");
}

// 355 / (10 + (50 + 10) / 2) = 8.9 streams at once, of which 1.8 start every 10 steps.
TEST(LoadStabilizing, GroupsStartAtIntervals) {
  EXPECT_DOUBLE_EQ(StableLoad::streams_for(355, 10, 50, 10), 8.875);
  EXPECT_DOUBLE_EQ(StableLoad::steady_sum(StableLoad::streams_for(5000, 0, 90, 10), 90, 10), 5000);
  PlannerHarness harness("load_stabilizing:load=355,interval=10");
  Sequence& first = harness.wait(1, 10, 0, 60);
  for (RequestId id = 2; id < 7; ++id) harness.wait(id, 10, 0, 60);
  EXPECT_EQ(harness.places(), "admit 1;");
  harness.waiting.erase(harness.waiting.begin());
  first.phase = StreamPhase::running;
  harness.running.push_back(&first);
  for (int step = 2; step <= 10; ++step) EXPECT_EQ(harness.places(), "") << step;
  EXPECT_EQ(harness.places(), "admit 2 3;");
}

// By default half of the KV cache; here 1000 blocks of 16 tokens.
TEST(LoadStabilizing, TheDefaultLimitIsHalfOfTheCache) {
  PlannerHarness harness("load_stabilizing:interval=4000");
  harness.wait(1, 10, 0, 4000), harness.wait(2, 10, 0, 4000), harness.wait(3, 10, 0, 4000);
  EXPECT_EQ(harness.places(), "admit 1 2;");
}

// The sum counts what the predictor expects, and blocks are promised for it.
TEST(LoadStabilizing, PredictedLengthsCountInPlaceOfTheLimitOfAnswers) {
  PlannerHarness harness("load_stabilizing:load=100,interval=20,predictor=constant:tokens=20");
  for (RequestId id = 1; id < 5; ++id) harness.wait(id, 10, 0, 1000);
  EXPECT_EQ(harness.places(), "admit 1 2 3;");
  EXPECT_EQ(harness.planner->policy().promise(*harness.waiting.front(), harness.limits), 30);
}

}  // namespace
}  // namespace millrace
