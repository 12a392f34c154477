// Every policy under random arrivals, cancellations, preemptions by recompute and by swap, time limits and several
// answers a request, in memory that is never enough: after every step every block is accounted for and none belongs to
// two, nothing starves, and what a stream shows is what it shows alone. 10,000 steps over all policies.
#include "properties/stream_bits.h"
#include "schedule/policy.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int kSteps = 1000;  // of each policy, and as many as it takes to end

struct Outcome {
  Request request;  // of this answer, as if asked alone
  Shown shown;
  FinishReason finish = FinishReason::none;
};

class EngineSchedule : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), detect_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    seed_ = 17;
    for (char c : GetParam()) seed_ = seed_ * 31 + static_cast<uint64_t>(c);
  }

  int64_t draw(int64_t n) { return static_cast<int64_t>(philox_uniform(seed_, 4, draws_++) * static_cast<double>(n)); }

  EngineOptions tight() {
    EngineOptions o = options(1, 24 + draw(24), 8);
    o.max_streams = 4;
    o.resident_streams = draw(2) ? 7 : 0;
    o.kv_tokens = 200;
    o.queue = 64;
    o.policy = GetParam();
    o.swap_tokens = draw(3) ? 150 : 0;
    o.prefix_cache = draw(3) != 0;
    return o;
  }

  Request random_request() {
    Request r = make_request(draw(1000), 1 + draw(60), 1 + draw(30), vocab_);
    if (draw(3) == 0) r.prompt = make_request(draw(3), 40, 1, vocab_).prompt;  // shared prefixes
    if (draw(4) == 0) r.n = 2 + draw(2);
    r.priority = draw(3);
    r.tenant = draw(2) ? "a" : "b";
    r.cache_prompt = draw(4) != 0;
    if (draw(3) == 0) r.deadline_seconds = 5 + static_cast<double>(draw(100));
    if (draw(10) == 0) r.time_limit_seconds = 1 + static_cast<double>(draw(20));
    r.known_tokens = draw(2) ? r.max_tokens : -1;
    return r;
  }

  // Sends somebody away who runs, whatever the policy would have.
  void preempt_someone(EngineCore& core, std::vector<TokenEvent>& events) {
    StepPlan plan;
    for (RequestId id = next_; id-- > 1 && plan.preempted.empty();)
      if (outcomes_.contains(id) && outcomes_[id].finish == FinishReason::none && draw(2)) plan.preempted = {{id, draw(2) == 0}};
    if (!plan.preempted.empty() && core.replay(plan, events).ok()) ++forced_;  // refused where the stream does not run
    take(core, {}, events);
  }

  void take(const EngineCore& core, const StepPlan& plan, const std::vector<TokenEvent>& events) {
    const float* row = core.last_logits();
    for (const auto& chunk : plan.chunks) {
      if (!chunk.sample) continue;
      outcomes_[chunk.request].shown.logits.emplace_back(row, row + vocab_);
      row += vocab_;
    }
    for (const auto& event : events) {
      Outcome& out = outcomes_[answer_stream(event.request, event.answer)];
      ASSERT_EQ(out.finish, FinishReason::none);
      if (event.token >= 0) out.shown.tokens.push_back(event.token);
      out.finish = event.finish;
      if (event.last) ++ended_;
    }
  }

  void step(EngineCore& core, ManualClock& clock) {
    std::vector<TokenEvent> events;
    if (draw(15) == 0) preempt_someone(core, events);
    events.clear();
    const StepPlan plan = core.step(events);
    clock.advance_ns(1'000'000 * (1 + draw(200)));
    take(core, plan, events);
    auto blocks = core.check_blocks();
    ASSERT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message) << " after " << plan.to_string();
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  uint64_t seed_ = 0, draws_ = 0;
  RequestId next_ = 1;
  int64_t added_ = 0, ended_ = 0, forced_ = 0;
  std::map<RequestId, Outcome> outcomes_;  // by stream
};

TEST_P(EngineSchedule, NobodyStarvesLeaksOrShows) {
  ManualClock clock;
  EngineOptions o = tight();
  auto made = EngineCore::create(model_, o, &clock);
  ASSERT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  EngineCore& core = **made;
  int steps = 0;
  for (; steps < kSteps || (!core.idle() && steps < 4 * kSteps); ++steps) {
    if (steps < kSteps && draw(6) == 0) {
      Request request = random_request();
      if (core.add(next_, request).ok()) {
        ++added_;
        for (int64_t answer = 0; answer < request.n; ++answer) {
          Request alone = request;
          alone.n = 1;
          alone.time_limit_seconds = alone.deadline_seconds = 0;
          alone.sampling.seed += static_cast<uint64_t>(answer);
          outcomes_[answer_stream(next_, answer)].request = std::move(alone);
        }
      }
      ++next_;
    }
    if (next_ > 1 && draw(40) == 0) core.cancel(1 + static_cast<RequestId>(draw(static_cast<int64_t>(next_) - 1)));
    step(core, clock);
    if (HasFatalFailure()) return;
  }
  ASSERT_TRUE(core.idle()) << "streams displace each other without end";
  EXPECT_EQ(ended_, added_);
  if (!o.prefix_cache) { EXPECT_EQ(core.kv().free_blocks(), core.kv().total_blocks()); }
  EXPECT_GT(forced_, 0);
  EXPECT_GT(core.stats().preemptions, 0);

  int64_t whole = 0;
  auto alone = make_core(model_, options());
  RequestId lone = 1;
  for (auto& [id, out] : outcomes_) {
    ASSERT_TRUE(out.finish != FinishReason::none && out.finish != FinishReason::error) << id;
    ASSERT_TRUE(alone->add(lone, out.request).ok());
    Shown expected = run_all(*alone, vocab_)[lone++];
    if (out.finish == FinishReason::cancelled || out.finish == FinishReason::time_limit) {  // what came is the beginning
      ASSERT_LE(out.shown.tokens.size(), expected.tokens.size());
      expected.tokens.resize(out.shown.tokens.size());
      expected.logits.resize(out.shown.tokens.size());
    } else {
      ++whole;
    }
    EXPECT_TRUE(out.shown.same_bits(expected)) << id;
  }
  EXPECT_GT(whole, 20);
}

std::vector<std::string> every_policy() {
  std::vector<std::string> out;
  for (const auto& entry : policies().entries()) out.push_back(entry.info.name);
  std::ranges::replace(out, std::string("fcfs"), std::string("fcfs:reserve=prompt"));  // whole promises preempt nobody
  return out;
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineSchedule, ::testing::ValuesIn(every_policy()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
});

TEST(EnginePlans, ARecordedPlanReplaysToTheSameStreams) {
  const auto model = load_for(golden_model("smollm3"), detect_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  EngineOptions o = options(1, 20, 8);
  o.kv_tokens = 120;
  o.policy = "priority";
  auto requests = [&](EngineCore& core) {
    for (RequestId id = 1; id <= 6; ++id) {
      Request r = make_request(static_cast<int64_t>(id), 8 * static_cast<int64_t>(id), 20, vocab);
      r.priority = static_cast<int64_t>(id % 3);
      ASSERT_TRUE(core.add(id, r).ok());
    }
  };
  auto show = [](std::map<RequestId, std::vector<TokenId>>& tokens, const std::vector<TokenEvent>& events) {
    for (const auto& event : events)
      if (event.token >= 0) tokens[event.request].push_back(event.token);
  };
  std::map<RequestId, std::vector<TokenId>> recorded, replayed;
  std::vector<std::string> plans;
  std::vector<TokenEvent> events;
  auto first = make_core(model, o);
  requests(*first);
  while (!first->idle()) {
    events.clear();
    plans.push_back(first->step(events).to_string());
    show(recorded, events);
  }
  EXPECT_GT(first->stats().preemptions, 0);

  o.policy = "fcfs";  // the plans decide, not the policy
  auto second = make_core(model, o);
  requests(*second);
  for (const std::string& text : plans) {
    events.clear();
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(second->replay(*plan, events).ok()) << text;
    show(replayed, events);
    EXPECT_TRUE(second->check_blocks().ok());
  }
  EXPECT_TRUE(second->idle());
  EXPECT_EQ(recorded, replayed);

  auto third = make_core(model, o);
  requests(*third);
  for (const char* text : {"admit 9;", "1:[0+4]", "admit 1; 1:[1+4]", "admit 2; 2:[0+4]*", "preempt 3;", "admit 3; 3:[0+4] 3:[4+4]"}) {
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok()) << text;
    EXPECT_FALSE(third->replay(*plan, events).ok()) << text;
    EXPECT_TRUE(third->check_blocks().ok());
  }
}

TEST(EnginePlans, AnswersShareThePrompt) {
  const auto model = load_for(golden_model("smollm3"), detect_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  for (int64_t prompt : {64, 61, 1, 8}) {
    EngineOptions o = options(1, 512, 8);
    o.prefix_cache = false;
    auto core = make_core(model, o);
    Request r = make_request(3, prompt, 6, vocab);
    r.n = 4;
    ASSERT_TRUE(core->add(1, r).ok());
    std::vector<TokenEvent> events;
    int64_t most_used = 0;
    while (!core->idle()) {
      core->step(events);
      most_used = std::max(most_used, core->kv().total_blocks() - core->kv().free_blocks());
      ASSERT_TRUE(core->check_blocks().ok());
    }
    EXPECT_LE(core->stats().prompt_tokens, prompt + 3);  // and the last token of each further answer
    EXPECT_LE(most_used, (prompt - 1) / 8 + 4 * 2) << prompt;
    std::map<int64_t, std::vector<TokenId>> answers;
    for (const auto& event : events) answers[event.answer].push_back(event.token);
    ASSERT_EQ(answers.size(), 4u);
    EXPECT_TRUE(events.back().last);
    EXPECT_EQ(std::ranges::count_if(events, [](const auto& e) { return e.last; }), 1);
    for (const auto& [answer, tokens] : answers) {
      Request alone = make_request(3, prompt, 6, vocab);
      alone.sampling.seed += static_cast<uint64_t>(answer);
      auto one = make_core(model, options());
      ASSERT_TRUE(one->add(1, alone).ok());
      EXPECT_EQ(run_all(*one, vocab)[1].tokens, tokens) << prompt << " " << answer;
    }
  }
}

TEST(EnginePlans, TimeLimitsEndStreamsAndFreeThem) {
  const auto model = load_for(golden_model("smollm3"), detect_isa());
  ASSERT_TRUE(model);
  ManualClock clock;
  EngineOptions o = options();
  o.prefix_cache = false;
  o.max_streams = 1;
  auto core = EngineCore::create(model, o, &clock);
  ASSERT_TRUE(core.ok());
  Request r = make_request(1, 10, 100, model->info().vocab);
  r.time_limit_seconds = 1;
  ASSERT_TRUE((*core)->add(1, r).ok());
  ASSERT_TRUE((*core)->add(2, r).ok());  // waits
  std::vector<TokenEvent> events;
  (*core)->step(events);
  (*core)->step(events);
  EXPECT_EQ(events.size(), 2u);
  clock.advance_ns(1'000'000'000);
  events.clear();
  (*core)->step(events);
  ASSERT_EQ(events.size(), 2u);
  for (const auto& event : events) EXPECT_EQ(event.finish, FinishReason::time_limit);
  EXPECT_TRUE((*core)->idle());
  EXPECT_EQ((*core)->kv().free_blocks(), (*core)->kv().total_blocks());
}

}  // namespace
}  // namespace millrace
