// Plans as values: recorded and replayed, they give the same streams; a plan that does not fit the streams is refused;
// the answers of one request share its prompt.
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

TEST(EnginePlans, ARecordedPlanReplaysToTheSameStreams) {
  const auto model = load_for(golden_model("smollm3"), *select_isa());
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
  for (const char* text :
       {"admit 9;", "1:[0+4]", "admit 1; 1:[1+4]", "admit 2; 2:[0+4]*", "preempt 3;", "admit 3; 3:[0+4] 3:[4+4]"}) {
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok()) << text;
    EXPECT_FALSE(third->replay(*plan, events).ok()) << text;
    EXPECT_TRUE(third->check_blocks().ok());
  }
}

TEST(EnginePlans, AnswersShareThePrompt) {
  const auto model = load_for(golden_model("smollm3"), *select_isa());
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
    EXPECT_LE(core->stats().prompt_tokens, prompt + 3);  // plus the last prompt token of each further answer
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
  const auto model = load_for(golden_model("smollm3"), *select_isa());
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
