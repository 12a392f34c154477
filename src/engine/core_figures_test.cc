// The engine loop on a scripted executor: exact events, observations of policy and cost model, timings and counters.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

// First come, first served; records every call.
class RecordingPolicy final : public SchedulerPolicy {
 public:
  explicit RecordingPolicy(Lines& calls) : calls_(calls) { policy_ = std::move(*make_policy("fcfs:reserve=prompt")); }
  void share(const ScheduleView& view, int64_t budget, std::vector<Share>& out) override {
    policy_->share(view, budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return policy_->victim(view, wanting);
  }
  int64_t promise(const Sequence& s, const PlannerLimits& limits) const override { return policy_->promise(s, limits); }
  Result<void> accept(const Sequence& s, const ScheduleView& view) override {
    calls_.push_back(fmt::format("asks {} waiting {} running {} free {} leaving {} swap {}",
                                 ScriptedEngine::with_answers(std::to_string(s.id)), view.waiting.size(),
                                 view.running.size(), view.free_blocks, view.leaving_blocks, view.swap_tokens_free));
    return s.request.priority == 9 ? Result<void>(Error::resource("policy: no")) : Result<void>();
  }
  void observe(const ScheduleEvent& e) override {
    static constexpr const char* kKinds[] = {"queued", "admitted", "ran", "preempted", "left"};
    calls_.push_back(fmt::format("{} {} tokens {}{} {:g} s{} kept {} lost {}", kKinds[static_cast<size_t>(e.kind)],
                                 ScriptedEngine::with_answers(std::to_string(e.stream->id)), e.tokens,
                                 e.sampled ? "*" : "", e.seconds, e.whole ? " whole" : "", e.kept, e.lost));
  }

 private:
  Lines& calls_;
  std::unique_ptr<SchedulerPolicy> policy_;
};

EngineOptions growing(int64_t blocks, int64_t swap_tokens = 0) {
  EngineOptions o = scripted_options(blocks);
  o.prefix_cache = false;
  o.kv_tier = memory_tier(swap_tokens);
  return o;
}

TEST(CoreFigures, PolicyObservesEveryChange) {
  Lines calls;
  ScriptedEngine e(growing(4), std::make_unique<RecordingPolicy>(calls));
  e.add(1, scripted_request(1000, 6, 4));
  e.add(2, scripted_request(2000, 6, 4));
  e.run();
  EXPECT_EQ(calls, (Lines{"asks 1 waiting 0 running 0 free 4 leaving 0 swap 0", "queued 1 tokens 0 0 s kept 0 lost 0",
                          "asks 2 waiting 1 running 0 free 4 leaving 0 swap 0", "queued 2 tokens 0 0 s kept 0 lost 0",
                          "admitted 1 tokens 0 0 s kept 0 lost 0", "admitted 2 tokens 0 0 s kept 0 lost 0",
                          "ran 1 tokens 6* 0.001 s kept 6 lost 0", "ran 2 tokens 6* 0.001 s kept 6 lost 0",
                          "ran 1 tokens 1* 0.001 s kept 1 lost 0", "ran 2 tokens 1* 0.001 s kept 1 lost 0",
                          "ran 1 tokens 1* 0.001 s kept 1 lost 0", "ran 2 tokens 1* 0.001 s kept 1 lost 0",
                          "preempted 2 tokens 0 0 s kept 0 lost 8", "ran 1 tokens 1* 0.001 s kept 1 lost 0",
                          "left 1 tokens 0 0 s whole kept 0 lost 0", "admitted 2 tokens 0 0 s kept 0 lost 0",
                          "ran 2 tokens 9* 0.001 s kept 1 lost 0", "left 2 tokens 0 0 s whole kept 0 lost 0"}));
}

TEST(CoreFigures, PolicyViewCountsBlocksBeingSwappedOut) {
  Lines calls;
  ScriptedEngine e(growing(4, 30), std::make_unique<RecordingPolicy>(calls));
  e.script.swap_seconds = 1e-3;
  e.script.tier_state = TierState::busy;
  e.add(1, scripted_request(1000, 6, 4));
  e.add(2, scripted_request(2000, 6, 4));
  while (e.streams().find("leaves") == std::string::npos) e.step();
  calls.clear();
  Request refused = scripted_request(3000, 3, 2);
  refused.priority = 9;
  const auto added = e.core->add(3, refused);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().message, "policy: no");
  refused.n = 3;
  EXPECT_FALSE(e.core->add(4, refused).ok());
  EXPECT_EQ(calls, (Lines{"asks 3 waiting 0 running 1 free 0 leaving 2 swap 22",
                          "asks 4 waiting 0 running 1 free 0 leaving 2 swap 22"}));
  EXPECT_EQ(e.core->stats().waiting, 1);  // rejected requests leave nothing behind
  e.script.tier_state = TierState::ready;
  e.run();
}

TEST(CoreFigures, OnlyUncutAnswersAreReportedAsComplete) {
  Lines calls;
  ScriptedEngine e(growing(40), std::make_unique<RecordingPolicy>(calls));
  e.add(1, scripted_request(1000, 3, 1));
  Request longer = scripted_request(2000, 3, 5);
  longer.known_tokens = -1;
  longer.max_tokens = 2;
  e.add(2, longer);
  e.add(3, scripted_request(3000, 3, 5));
  e.step();
  e.step();
  e.core->cancel(3);
  e.step();
  Lines left;
  for (const std::string& line : calls)
    if (line.starts_with("left")) left.push_back(line);
  EXPECT_EQ(left, (Lines{"left 1 tokens 0 0 s whole kept 0 lost 0", "left 2 tokens 0 0 s whole kept 0 lost 0",
                         "left 3 tokens 0 0 s kept 0 lost 0"}));
}

TEST(CoreFigures, CostModelObservesEveryStepShape) {
  ScriptedEngine e(growing(20));
  e.add(1, scripted_request(1000, 20, 2));
  e.add(2, scripted_request(2000, 5, 3));
  e.run();
  EXPECT_EQ(e.script.shapes,
            (Lines{"16 tokens 0 outputs 16 keys 136 pairs 0.001 s", "9 tokens 2 outputs 25 keys 89 pairs 0.001 s",
                   "2 tokens 2 outputs 27 keys 27 pairs 0.001 s", "1 tokens 1 outputs 7 keys 7 pairs 0.001 s"}));
  const StepTokens& tokens = e.core->stats().step_tokens;
  EXPECT_EQ(tokens.tokens, 28);
  EXPECT_EQ(std::vector<int64_t>(tokens.buckets.begin(), tokens.buckets.begin() + 6),
            (std::vector<int64_t>{1, 1, 0, 0, 2, 0}));
}

// 3 ms in the queue, two steps of 1 ms to the first token, two more to the last.
TEST(CoreFigures, RequestTimings) {
  EngineOptions o = scripted_options(20, 1);
  ScriptedEngine e(o);
  e.add(1, scripted_request(1000, 4, 3));
  e.add(2, scripted_request(2000, 20, 3));
  e.run();
  const TokenEvent& first = e.all[2];
  EXPECT_EQ(first.made_ns, 3'000'001);
  EXPECT_DOUBLE_EQ(first.timings.queue_seconds, 0);
  EXPECT_DOUBLE_EQ(first.timings.prefill_seconds, 0.001);
  EXPECT_DOUBLE_EQ(first.timings.decode_seconds, 0.002);
  EXPECT_DOUBLE_EQ(first.timings.first_token_seconds, 0.001);
  EXPECT_EQ(first.text, ".");
  const TokenEvent& last = e.all.back();
  EXPECT_EQ(last.request, 2u);
  EXPECT_EQ(last.finish, FinishReason::stop);
  EXPECT_EQ(last.made_ns, 7'000'001);
  EXPECT_DOUBLE_EQ(last.timings.queue_seconds, 0.003);
  EXPECT_DOUBLE_EQ(last.timings.prefill_seconds, 0.002);
  EXPECT_DOUBLE_EQ(last.timings.decode_seconds, 0.002);
  EXPECT_DOUBLE_EQ(last.timings.first_token_seconds, 0.005);
  EXPECT_EQ(last.timings.prompt_tokens, 20);
  EXPECT_EQ(last.timings.generated_tokens, 3);
  EXPECT_EQ(last.timings.cached_tokens, 0);
}

// A request that waited elsewhere carries its submission time; one that never ran has only waiting time.
TEST(CoreFigures, TimingsStartAtSubmission) {
  ScriptedEngine e(scripted_options(20, 1));
  e.clock.advance_ns(9'000'000 - 1);
  ASSERT_TRUE(e.core->add(1, scripted_request(1000, 4, 1), 4'000'000).ok());
  ASSERT_TRUE(e.core->add(2, scripted_request(2000, 4, 1)).ok());
  e.core->cancel(2);
  e.step();
  ASSERT_EQ(e.all.size(), 2u);
  EXPECT_EQ(e.all[0].request, 2u);
  EXPECT_EQ(e.all[0].made_ns, 9'000'000);
  EXPECT_DOUBLE_EQ(e.all[0].timings.queue_seconds + e.all[0].timings.prefill_seconds + e.all[0].timings.decode_seconds,
                   0);
  EXPECT_DOUBLE_EQ(e.all[0].timings.first_token_seconds, 0);
  EXPECT_DOUBLE_EQ(e.all[1].timings.queue_seconds, 0.005);
  EXPECT_DOUBLE_EQ(e.all[1].timings.first_token_seconds, 0.006);
}

TEST(CoreFigures, TimeLimitsApplyAfterRequestsWithoutOne) {
  for (int before : {0, 1, 2}) {
    ScriptedEngine e(scripted_options(40));
    for (int i = 0; i < before; ++i) {
      e.add(static_cast<RequestId>(1 + i), scripted_request(1000, 4, 2));
      e.run();
    }
    Request request = scripted_request(2000, 4, 30);
    request.time_limit_seconds = 0.003;
    e.add(7, request);
    if (before == 2) e.add(8, scripted_request(3000, 4, 1));
    EXPECT_EQ(e.run(), 4);
    EXPECT_EQ(e.all.back().finish, FinishReason::time_limit);
    EXPECT_EQ(e.all.back().timings.generated_tokens, 3);  // at 3 ms, not after
    EXPECT_EQ(e.core->stats().running, 0);
  }
}

TEST(CoreFigures, NothingToGenerateEndsAfterThePrompt) {
  ScriptedEngine e(scripted_options(40));
  Request request = scripted_request(1000, 18, 5);
  request.max_tokens = 0;
  e.add(1, request);
  EXPECT_EQ(e.watch(), (Lines{"admit 1; 1:[0+16] | 1 runs 16/18 4", "1:[16+2]* | "}));
  ASSERT_EQ(e.all.size(), 1u);
  EXPECT_EQ(e.all[0].finish, FinishReason::length);
  EXPECT_EQ(e.all[0].token, -1);
  EXPECT_TRUE(e.all[0].last);
  EXPECT_EQ(e.core->stats().generated_tokens, 0);
  EXPECT_EQ(e.core->stats().prompt_tokens, 18);
  request.max_tokens = -1;
  request.known_tokens = -1;
  e.add(2, request);
  e.run();
  EXPECT_EQ(e.all.back().finish, FinishReason::length);
  EXPECT_EQ(e.all.back().timings.generated_tokens, 64 - 18);
}

TEST(CoreFigures, ExecutorErrorEndsOnlyItsStream) {
  Script script;
  script.fails_at = 2;
  ScriptedEngine e(scripted_options(40), nullptr, script);
  e.add(1, scripted_request(1000, 4, 5));
  e.add(2, scripted_request(2000, 4, 2));
  e.run();
  ASSERT_EQ(e.all.size(), 5u);
  const TokenEvent& failed = e.all.back();
  EXPECT_EQ(failed.request, 1u);
  EXPECT_EQ(failed.finish, FinishReason::error);
  EXPECT_EQ(failed.error.kind, ErrorKind::internal);
  EXPECT_EQ(failed.error.message, "choose: no next token");
  EXPECT_EQ(failed.text, "");
  EXPECT_EQ(failed.timings.generated_tokens, 2);
  EXPECT_EQ(e.all[3].finish, FinishReason::stop);
  EXPECT_EQ(e.core->stats().kv_blocks_free + e.core->stats().kv_blocks_cached, 40);
}

TEST(CoreFigures, LogprobsAreReturnedIfRequested) {
  ScriptedEngine e(scripted_options(40));
  Request request = scripted_request(1000, 4, 2);
  e.add(1, request);
  request.sampling.logprobs = 0;
  e.add(2, request);
  e.run();
  for (const TokenEvent& event : e.all) {
    EXPECT_EQ(event.logprob.logprob, event.request == 2 ? -1.0f : 0.0f);
    EXPECT_EQ(event.logprob.token, event.request == 2 ? event.token : 0);
  }
}

TEST(CoreFigures, StatsOfIdleAndBusyEngine) {
  ScriptedEngine e(scripted_options(10, 1));
  EngineStats s = e.core->stats();
  EXPECT_EQ(s.kv_blocks, 10);
  EXPECT_EQ(s.kv_blocks_free, 10);
  EXPECT_EQ(s.kv_bytes, 10 * 4 * 4 * 2 * 4);  // blocks x tokens x layers x (K, V) x float
  EXPECT_EQ(s.scratch_bytes, 12345);
  EXPECT_FALSE(s.store.open);
  e.add(1, scripted_request(1000, 9, 2));
  e.add(2, scripted_request(1000, 9, 1));
  e.run();
  s = e.core->stats();
  EXPECT_EQ(s.kv_blocks_cached, 2);
  EXPECT_EQ(s.kv_blocks_free, 8);
  EXPECT_EQ(s.cached_tokens, 8);
  EXPECT_EQ(s.prefix.queries, 2);
  EXPECT_EQ(s.prefix.query_tokens, 16);
  EXPECT_EQ(s.prefix.hit_tokens, 8);
  EXPECT_EQ(s.prefix.stored_blocks, 2);
  EXPECT_EQ(s.prefix.erased_blocks, 0);
  EXPECT_EQ(s.livelocks, 0);
  EXPECT_EQ(e.core->cached_tokens(scripted_request(1000, 9, 1)), 8);
  EXPECT_EQ(e.core->cached_tokens(scripted_request(1000, 8, 1)), 4);
  EXPECT_EQ(e.core->cached_tokens(scripted_request(2000, 9, 1)), 0);
  Request alone = scripted_request(1000, 9, 1);
  alone.cache_prompt = false;
  EXPECT_EQ(e.core->cached_tokens(alone), 0);
  EXPECT_EQ(e.core->cached_tokens(Request{}), 0);
}

}  // namespace
}  // namespace millrace
