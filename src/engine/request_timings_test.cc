// The figures of a request, from what its stream has counted.
#include <gtest/gtest.h>

#include "engine/stream_closer.h"

namespace millrace {
namespace {

TEST(RequestFigures, AreThoseOfItsStream) {
  Sequence s;
  s.request.prompt.assign(20, 1);
  s.computed = 31;
  s.prefix.cached = 8;
  s.kv.left_out = 6;
  s.kv.most_left_out = 4;
  s.times = {.submitted = 1'000'000'000, .admitted = 1'500'000'000, .first_token = 3'500'000'000};
  s.progress.preemptions = 3;
  s.draft.passes = 7;
  s.draft.drafted = 12;
  s.draft.accepted = 5;
  s.draft.drafted_at[0] = 6;
  s.draft.drafted_at[1] = 2;
  s.draft.accepted_at[0] = 4;
  s.draft.accepted_at[1] = 1;
  RequestTimings t = timings(s, 13, 4'750'000'000);
  EXPECT_EQ(t.prompt_tokens, 20);
  EXPECT_EQ(t.cached_tokens, 8);
  EXPECT_EQ(t.left_out_tokens, 4);
  EXPECT_EQ(t.kept_tokens, 25);
  EXPECT_EQ(t.evicted_tokens, 0) << "it has no evictor";
  EXPECT_EQ(t.generated_tokens, 13);
  EXPECT_DOUBLE_EQ(t.queue_seconds, 0.5);
  EXPECT_DOUBLE_EQ(t.prefill_seconds, 2);
  EXPECT_DOUBLE_EQ(t.decode_seconds, 1.25);
  EXPECT_DOUBLE_EQ(t.first_token_seconds, 2.5);
  EXPECT_EQ(t.preemptions, 3);
  EXPECT_EQ(t.target_passes, 7);
  EXPECT_EQ(t.drafted_tokens, 12);
  EXPECT_EQ(t.accepted_tokens, 5);
  EXPECT_EQ(t.drafted_at, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(t.accepted_at, (std::vector<int64_t>{4, 1}));
  s.kv.most_stored = 1;
  EXPECT_EQ(timings(s, 13, 4'750'000'000).evicted_tokens, 6);
}

// What has not happened has taken no time, at the clock's first nanosecond too.
TEST(RequestFigures, OfAStreamThatNeverRanAreZero) {
  Sequence s;
  s.times.submitted = 1;
  RequestTimings t = timings(s, 0, 2'000'000'001);
  EXPECT_EQ(t.queue_seconds + t.prefill_seconds + t.decode_seconds + t.first_token_seconds, 0);
  s.times.admitted = 1'000'000'001;
  t = timings(s, 0, 2'000'000'001);
  EXPECT_DOUBLE_EQ(t.queue_seconds, 1) << "submitted at 1 ns";
  EXPECT_EQ(t.prefill_seconds + t.decode_seconds + t.first_token_seconds, 0);
  EXPECT_TRUE(t.drafted_at.empty());
}

}  // namespace
}  // namespace millrace
