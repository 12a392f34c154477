// DraftDriver by itself: how long a draft becomes for what it costs.
#include "engine/draft_driver_test.h"

namespace millrace {
namespace {

using namespace testing;

// With nothing known, a model's tokens are kept with probability 0.9 each. A step of n tokens costs 1 + 0.01 n and the
// drafts' passes p a token: 1.9 / 1.52, 2.71 / 2.03, 3.439 / 2.54 and 4.095 / 3.05 tokens a second at p = 0.5.
TEST_F(DraftDriverTest, PassesOfTheModelCount) {
  const std::pair<double, int64_t> lengths[] = {{0, 4}, {0.5, 3}, {0.6, 2}, {0.8, 1}, {2, 0}};
  for (const auto& [pass, length] : lengths) {
    lists_ = {};
    script_ = {};
    open({.model = true}, true);
    decoding_stream();
    run_pass(static_cast<int64_t>(4 * pass * kSecond));
    EXPECT_EQ(worthwhile(), length) << pass;
  }
}

// The estimate is the fastest recent pass: 0.5 s, then min(1.5, 0.9 x 0.5 + 0.1 x 1.5) = 0.6 s, then 0.1 s.
TEST_F(DraftDriverTest, TheFastestPassOfLateCounts) {
  open({.model = true}, true);
  decoding_stream();
  run_pass(4 * kSecond / 2);
  run_pass(3 * 3 * kSecond / 2);
  EXPECT_EQ(proposed(), 2);
  run_pass(2 * kSecond / 10);
  EXPECT_EQ(proposed(), 4);
}

// Passes of one stream and of three take different times; what has not been measured is taken from fewer streams, or
// else from more.
TEST_F(DraftDriverTest, PassesAreTimedByTheNumberOfStreams) {
  open({.model = true}, true);
  decoding_stream();
  run_pass(4 * kSecond / 2);
  decoding_stream();
  decoding_stream();
  driver_->propose(lists_);
  EXPECT_GT(drafted(0), 0) << "as fast as one";
  script_.pass_ns = 400 * kSecond;
  auto work = decode_all();
  driver_->before_pass(work);
  EXPECT_EQ(worthwhile(), 0);
  lists_ = {};
  decoding_stream();
  EXPECT_EQ(proposed(), 3) << "of one stream the first measurement holds";

  lists_ = {};
  script_ = {};
  open({.model = true}, true);
  for (int i = 0; i < 3; ++i) decoding_stream();
  run_pass(400 * kSecond);
  lists_ = {};
  decoding_stream();
  EXPECT_EQ(worthwhile(), 0) << "one stream has not been measured";
}

TEST_F(DraftDriverTest, AStepWithoutDraftsMeasuresNothing) {
  open({.model = true}, true);
  decoding_stream();
  driver_->propose(lists_);
  auto work = decode_all();
  work[0].chunk = {1, 5, 1, true, 0};
  script_.pass_ns = 400 * kSecond;
  EXPECT_FALSE(driver_->before_pass(work));
  EXPECT_EQ(proposed(), 4);
}

// A draft fits what is left of the step's tokens and rows.
TEST_F(DraftDriverTest, DraftsFitTheStep) {
  open({.model = true}, true);
  decoding_stream();
  const auto with = [&](int64_t tokens, int64_t outputs) {
    loop_.limits.batch_tokens = tokens;
    loop_.limits.outputs = outputs;
    return proposed();
  };
  EXPECT_EQ(with(100, 100), 4);
  EXPECT_EQ(with(3, 100), 2);
  EXPECT_EQ(with(100, 2), 1);
  EXPECT_EQ(with(1, 100), 0);
  loop_.limits = {};
  cost_->asked.clear();
  EXPECT_EQ(proposed(), 4);
  // The stream's own token behind five stored ones, and then each drafted one, with about as many keys.
  ASSERT_EQ(cost_->asked.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(cost_->asked[i].tokens, static_cast<int64_t>(1 + i));
    EXPECT_EQ(cost_->asked[i].outputs, static_cast<int64_t>(1 + i));
    EXPECT_EQ(cost_->asked[i].keys, static_cast<int64_t>(6 + i));
    EXPECT_DOUBLE_EQ(cost_->asked[i].pairs, 6.0 + 6.0 * static_cast<double>(i));
  }
  // Streams that read their prompts are no part of it.
  decoding_stream().sequence.computed = 0;
  decoding_stream().sequence.held_back = true;
  cost_->asked.clear();
  driver_->propose(lists_);
  ASSERT_FALSE(cost_->asked.empty());
  EXPECT_EQ(cost_->asked[0].tokens, 1);
}

// Where no cost model was given, the measured times of decoding steps count: 1 s for one token, 5 s for five.
TEST_F(DraftDriverTest, MeasuredStepsCount) {
  for (const bool prompt : {false, true}) {
    lists_ = {};
    script_ = {};
    open(DriverDrafter::Kind{}, true, true);
    script_.draft.tokens = {7, 7, 7, 7};
    decoding_stream();
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(proposed(), 4);
      auto work = decode_all();
      if (turn == 1) work[0].chunk = {1, 5, 1, true, 0};
      if (prompt) work.push_back({work[0].stream, {1, 0, 2, true, 0}});
      driver_->before_pass(work);
      script_.clock.advance_ns(work[0].chunk.count * kSecond);
      driver_->end_step();
    }
    EXPECT_EQ(worthwhile(), prompt ? 4 : 0) << "a step with a prompt tells nothing";
  }
}

// The longest branch of this tree has three tokens, of which 0.6 + 0.36 + 0.216 = 1.176 are kept where nothing is
// known: 2.176 / (1 + 6 c) tokens a second, which is worth it while it is more than 1.05 / (1 + c), up to c = 0.273.
TEST_F(DraftDriverTest, ATreeRunsForItsLongestBranch) {
  const std::pair<double, int64_t> lengths[] = {{0.26, 5}, {0.28, 0}};
  for (const auto& [each, length] : lengths) {
    lists_ = {};
    script_ = {};
    open({.longest = 5, .trees = true}, true);
    cost_->each = each;
    script_.draft.tokens = {7, 8, 9, 10, 11};
    script_.draft.parents = {-1, 0, -1, 2, 3};
    decoding_stream();
    EXPECT_EQ(worthwhile(), length) << each;
    EXPECT_EQ(drafted(), 5) << "chosen or in a trial, a tree runs whole";
    EXPECT_EQ(std::ssize(lists_.running()[0]->sequence.draft.parents), 5);
  }
}

// Probes are worth what steps with them have kept: 4 tokens at first, w after. (1 + w) / 11 is worth a step while it is
// more than 1.05 / 3, w > 2.85: 4, 3.6, 3.24, 2.916, and no longer at 2.624. It then fades back to 4: 4 - 1.3756 x
// 0.9995^n exceeds 2.85 again after 359 steps in which they did not run, trials aside.
TEST_F(DraftDriverTest, ProbesAreWorthWhatTheyHaveKept) {
  open({.longest = 4, .trees = true}, true);
  cost_->each = 2;
  script_.draft.tokens = {7, 7, 7, 7};
  script_.draft.parents = {-1, -1, -1, -1};
  script_.draft.probes = 4;
  LiveStream& a = decoding_stream();
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(proposed(), 4) << step;
    script_.heard.clear();
    driver_->observe(a, 4, 1, 5, *loop_.executor);
    EXPECT_EQ(script_.heard, Words{"1 has 1, probed 106 107 108 109"});
  }
  for (int step = 0; step < 1000 && worthwhile() == 0; ++step) continue;
  EXPECT_NEAR(decisions().declined, 359, 1);
  EXPECT_EQ(decisions().chosen, 5);
}

}  // namespace
}  // namespace millrace
