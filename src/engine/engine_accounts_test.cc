// Checks the engine's statistics against sums over its plans and events: tokens computed, recomputed, swapped and
// generated, preemptions, times, and how many streams fit in how many blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/philox.h"
#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"
#include "run/plan/kv_places.h"
#include "schedule/cost_model.h"

namespace millrace {
namespace {

constexpr int64_t kAccountBlock = 16;

class Bench {
 public:
  explicit Bench(const EngineOptions& options) {
    auto cost = load_cost_model("llama-7b-a100");
    EXPECT_TRUE(cost.ok());
    auto made = SimulatedExecutor::create(std::move(*cost), clock_, options);
    EXPECT_TRUE(made.ok());
    executor_ = made->get();
    auto core = EngineCore::create(std::move(*made), options, &clock_);
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    core_ = std::move(*core);
  }
  EngineCore& core() { return *core_; }
  ManualClock& clock() { return clock_; }
  // One step. If nothing ran, time advances to the end of the next move.
  StepPlan step(std::vector<TokenEvent>& events) {
    const StepPlan plan = core_->step(events);
    if (plan.chunks.empty())
      if (const int64_t next = executor_->next_move_ns()) clock_.advance_ns(next - clock_.now_ns());
    return plan;
  }

 private:
  ManualClock clock_;
  SimulatedExecutor* executor_ = nullptr;
  std::unique_ptr<EngineCore> core_;
};

EngineOptions accounting_machine(int64_t kv_tokens, const std::string& policy = "fcfs") {
  EngineOptions o;
  o.context = 512;
  o.max_streams = 16;
  o.kv_tokens = kv_tokens;
  o.block_tokens = kAccountBlock;
  o.batch_tokens = 256;
  o.queue = 1000;
  o.policy = policy;
  o.prefix_cache = false;
  return o;
}

Request ask(int64_t prompt, int64_t answer, TokenId token = 7) {
  Request request;
  request.prompt.assign(static_cast<size_t>(prompt), token);
  request.known_tokens = answer;
  request.max_tokens = answer;
  return request;
}

double seconds(int64_t from, int64_t to) { return static_cast<double>(to - from) * 1e-9; }

// The state of a stream, derived from plans and events only.
struct Known {
  int64_t prompt = 0, answer = 0, computed = 0, tokens = 0, preemptions = 0, written = 0;
  int64_t submitted = 0, admitted = 0, first = 0;
  bool away = false;  // swapped out
};

class Accounts : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(Accounts, MatchPlansAndEvents) {
  const auto [policy, swap] = GetParam();
  EngineOptions options = accounting_machine(1024, policy);
  options.resident_streams = 32;
  options.kv_tier = memory_tier(swap);
  Bench bench(options);
  EngineCore& core = bench.core();
  std::map<RequestId, Known> streams;
  EngineStats expected;
  RequestId next = 1;
  std::vector<TokenEvent> events;
  for (int step = 0; step < 100'000 && (next <= 60 || !core.idle()); ++step) {
    if (next <= 60 && (core.idle() || step % 3 == 0)) {
      const auto draw = philox4x32(5, next, 0);
      const int64_t prompt = 1 + draw[0] % 200, answer = 1 + draw[1] % 150;
      Request request = ask(prompt, answer);
      request.priority = draw[2] % 3;
      ASSERT_TRUE(core.add(next, request).ok());
      streams[next++] = {.prompt = prompt, .answer = answer, .tokens = prompt, .submitted = bench.clock().now_ns()};
    }
    events.clear();
    const int64_t before = bench.clock().now_ns();
    const StepPlan plan = bench.step(events);
    const int64_t after = bench.clock().now_ns();
    auto preempt = [&](const PlannedPreemption& one) {
      Known& s = streams.at(one.request);
      ++expected.preemptions, ++s.preemptions;
      if (one.swap && s.computed > 0) {
        expected.swapped_out_tokens += s.computed;
        s.away = true;
      } else {
        expected.recomputed_tokens += s.computed;
        s.computed = 0;
      }
    };
    for (const auto& one : plan.preempted) preempt(one);
    for (RequestId id : plan.admitted) {
      Known& s = streams.at(id);
      if (s.admitted == 0) s.admitted = before;
      if (s.away) expected.swapped_in_tokens += s.computed;
      s.away = false;
    }
    for (const auto& one : plan.preempted_for_blocks) preempt(one);
    int64_t step_tokens = 0, samples = 0;
    for (const PlannedChunk& chunk : plan.chunks) {
      Known& s = streams.at(chunk.request);
      ASSERT_EQ(chunk.first, s.computed);
      ASSERT_FALSE(s.away);
      ASSERT_EQ(chunk.sample, chunk.first + chunk.count == s.tokens);
      s.computed += chunk.count;
      step_tokens += chunk.count;
      samples += chunk.sample;
      expected.prompt_tokens += std::max<int64_t>(0, std::min(s.prompt, s.computed) - chunk.first);
    }
    expected.steps += !plan.chunks.empty();
    ASSERT_LE(step_tokens, options.batch_tokens);
    ASSERT_EQ(static_cast<int64_t>(events.size()), samples);
    for (const TokenEvent& event : events) {
      Known& s = streams.at(event.request);
      ++expected.generated_tokens, ++s.written, ++s.tokens;
      if (s.first == 0) s.first = after;
      ASSERT_EQ(event.made_ns, after);
      ASSERT_EQ(event.last, s.written == s.answer);
      ASSERT_EQ(event.finish, event.last ? FinishReason::stop : FinishReason::none);
      if (!event.last) continue;
      const RequestTimings& t = event.timings;
      EXPECT_EQ(t.prompt_tokens, s.prompt);
      EXPECT_EQ(t.generated_tokens, s.answer);
      EXPECT_EQ(t.preemptions, s.preemptions);
      EXPECT_EQ(t.cached_tokens, 0);
      EXPECT_NEAR(t.queue_seconds, seconds(s.submitted, s.admitted), 1e-9);
      EXPECT_NEAR(t.prefill_seconds, seconds(s.admitted, s.first), 1e-9);
      EXPECT_NEAR(t.first_token_seconds, seconds(s.submitted, s.first), 1e-9);
      EXPECT_NEAR(t.decode_seconds, seconds(s.first, after), 1e-9);
      streams.erase(event.request);
    }
    const EngineStats stats = core.stats();
    ASSERT_EQ(stats.steps, expected.steps);
    ASSERT_EQ(stats.prompt_tokens, expected.prompt_tokens);
    ASSERT_EQ(stats.generated_tokens, expected.generated_tokens);
    ASSERT_EQ(stats.preemptions, expected.preemptions);
    ASSERT_EQ(stats.recomputed_tokens, expected.recomputed_tokens);
    ASSERT_EQ(stats.swapped_out_tokens, expected.swapped_out_tokens);
    ASSERT_EQ(stats.swapped_in_tokens, expected.swapped_in_tokens);
    ASSERT_EQ(stats.running + stats.waiting, static_cast<int64_t>(streams.size()));
    ASSERT_TRUE(core.check_blocks().ok()) << core.check_blocks().error().message;
  }
  ASSERT_TRUE(core.idle());
  EXPECT_EQ(core.stats().kv_blocks_free, 1024 / kAccountBlock);
  EXPECT_GT(expected.preemptions, 0) << "the load caused no preemption";
  EXPECT_GT(expected.recomputed_tokens + expected.swapped_out_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(OfEachPolicy, Accounts,
                         ::testing::Combine(::testing::Values("fcfs:reserve=prompt", "priority",
                                                              "prefill_first:reserve=prompt"),
                                            ::testing::Values(0, 600, 100'000)));

// Further answers share exactly the full blocks before the prompt's last token: with the blocks computed here all
// answers run at once, with one less they do not.
TEST(AnswersBlocks, CountOnlyUnsharedBlocks) {
  for (int64_t prompt : {1, 15, 16, 17, 31, 32, 33, 34, 48}) {
    constexpr int64_t kAnswers = 4, kAnswer = 12;
    const int64_t whole = (prompt + kAnswer + kAccountBlock - 1) / kAccountBlock, shared = (prompt - 1) / kAccountBlock;
    const int64_t exact = whole + (kAnswers - 1) * (whole - shared);
    for (int64_t blocks : {exact, exact - 1}) {
      Bench bench(accounting_machine(blocks * kAccountBlock));
      Request request = ask(prompt, kAnswer);
      request.n = kAnswers;
      ASSERT_TRUE(bench.core().add(1, request).ok());
      std::vector<TokenEvent> events;
      int64_t most = 0;
      for (int step = 0; step < 1000 && !bench.core().idle(); ++step) {
        bench.step(events);
        most = std::max(most, bench.core().stats().running);
        ASSERT_TRUE(bench.core().check_blocks().ok()) << bench.core().check_blocks().error().message;
      }
      EXPECT_EQ(most, blocks == exact ? kAnswers : kAnswers - 1) << prompt << " tokens, " << blocks << " blocks";
      EXPECT_EQ(bench.core().stats().preemptions, 0) << prompt;
      EXPECT_EQ(bench.core().stats().generated_tokens, kAnswers * kAnswer);
      if (blocks == exact) {
        EXPECT_EQ(bench.core().stats().prompt_tokens, prompt + kAnswers - 1) << prompt;
      }
      std::map<int64_t, int64_t> written;
      for (const TokenEvent& event : events) ++written[event.answer];
      EXPECT_EQ(written, (std::map<int64_t, int64_t>{{0, kAnswer}, {1, kAnswer}, {2, kAnswer}, {3, kAnswer}}));
    }
  }
}

// A preempted stream is ahead of streams that arrived later.
TEST(Queue, PreemptedStreamsKeepArrivalOrder) {
  Bench bench(accounting_machine(6 * kAccountBlock, "priority"));
  std::vector<TokenEvent> events;
  Request low = ask(40, 40), high = ask(60, 30);
  high.priority = 5;
  ASSERT_TRUE(bench.core().add(1, low).ok());
  bench.step(events);
  ASSERT_TRUE(bench.core().add(2, low).ok());
  bench.step(events);
  ASSERT_TRUE(bench.core().add(3, high).ok());
  std::vector<RequestId> ended;
  for (int step = 0; step < 1000 && !bench.core().idle(); ++step) {
    events.clear();
    bench.step(events);
    for (const TokenEvent& event : events)
      if (event.last) ended.push_back(event.request);
  }
  EXPECT_EQ(ended, (std::vector<RequestId>{3, 1, 2}));
  EXPECT_GE(bench.core().stats().preemptions, 1);
}

TEST(Limits, CancelledAndLateStreamsReleaseEverything) {
  for (bool late : {false, true}) {
    Bench bench(accounting_machine(64 * kAccountBlock));
    std::vector<TokenEvent> events;
    for (RequestId id : {1, 2, 3}) {
      Request request = ask(50, 100);
      if (late && id == 2) request.time_limit_seconds = 0.5;
      ASSERT_TRUE(bench.core().add(id, request).ok());
    }
    for (int i = 0; i < 3; ++i) bench.step(events);
    if (late)
      bench.clock().advance_ns(500'000'000);
    else
      bench.core().cancel(2);
    events.clear();
    bench.step(events);
    const auto ended = std::ranges::find(events, RequestId{2}, &TokenEvent::request);
    ASSERT_NE(ended, events.end());
    EXPECT_TRUE(ended->last);
    EXPECT_EQ(ended->finish, late ? FinishReason::time_limit : FinishReason::cancelled);
    EXPECT_EQ(ended->timings.generated_tokens, 3);
    EXPECT_EQ(bench.core().stats().running, 2);
    for (int step = 0; step < 1000 && !bench.core().idle(); ++step) bench.step(events);
    EXPECT_EQ(bench.core().stats().generated_tokens, 3 + 2 * 100);
    EXPECT_EQ(bench.core().stats().kv_blocks_free, 64);
  }
}

TEST(Queue, RejectsRequestsWhileFull) {
  EngineOptions options = accounting_machine(64 * kAccountBlock);
  options.queue = 2;
  options.max_streams = 1;
  Bench bench(options);
  std::vector<TokenEvent> events;
  ASSERT_TRUE(bench.core().add(1, ask(5, 5)).ok());
  bench.step(events);  // runs
  ASSERT_TRUE(bench.core().add(2, ask(5, 5)).ok());
  ASSERT_TRUE(bench.core().add(3, ask(5, 5)).ok());
  const auto refused = bench.core().add(4, ask(5, 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  for (int i = 0; i < 6; ++i) bench.step(events);  // 1 has ended, 2 runs
  EXPECT_TRUE(bench.core().add(5, ask(5, 5)).ok());
}

}  // namespace
}  // namespace millrace
