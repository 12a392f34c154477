// Steps of an engine whose executor has documents that are not encoded yet, finds damaged weights, or computes prompts
// in another way than answers.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

// A stream whose documents are missing skips the step; all streams of a step share its budget.
TEST(ExecutorSteps, StreamsWaitForTheirDocuments) {
  ScriptedEngine e(scripted_options(20));
  Lines budgets;
  bool encoded = false;
  e.script.documents = [&](const Sequence& s, int64_t& budget) {
    budgets.push_back(fmt::format("{} {}", s.id, budget));
    budget -= 5;
    return s.id != 2 || encoded;
  };
  e.add(1, scripted_request(1000, 6, 3));
  e.add(2, scripted_request(2000, 5, 2));
  EXPECT_EQ(e.watch(1), (Lines{"admit 1 2; 1:[0+6]* | 1 runs 6/7 2, 2 runs 0/5 0"}));
  EXPECT_EQ(budgets, (Lines{"1 16", "2 11"}));
  encoded = true;
  budgets.clear();
  EXPECT_EQ(e.watch(), (Lines{"1:[6+1]* 2:[0+5]* | 1 runs 7/8 2, 2 runs 5/6 2", "1:[7+1]* 2:[5+1]* | "}));
  EXPECT_EQ(budgets, (Lines{"1 16", "2 11", "1 16", "2 11"}));
}

// A recorded step encodes what it needs at once.
TEST(ExecutorSteps, ReplayedStepsHaveNoBudget) {
  ScriptedEngine e(scripted_options(20));
  int64_t seen = 0;
  e.script.documents = [&](const Sequence&, int64_t& budget) {
    seen = budget;
    return true;
  };
  e.add(1, scripted_request(1000, 6, 3));
  ASSERT_TRUE(e.core->replay(StepPlan::parse("admit 1; 1:[0+6]*").value(), e.events).ok());
  EXPECT_EQ(seen, INT64_MAX);
}

// What was computed with damaged weights is not kept: of eight tokens seven are, and the second block is not whole.
TEST(ExecutorSteps, DamagedWeightsEndEveryRequest) {
  Script script;
  script.likeliest = [](const std::vector<TokenId>&) {
    return std::vector<TokenLogprob>{{1, -0.5f}, {2, -1.0f}, {4, -3.0f}, {5, -4.0f}};
  };
  ScriptedEngine e(scripted_options(30), nullptr, script);
  e.add(1, scripted_request(1000, 7, 9));
  e.add(2, scripted_request(2000, 7, 9));
  Request search = scripted_request(3000, 2, 9);
  search.beams = search.n = 2;
  e.add(3, search);
  e.step();
  EXPECT_EQ(e.core->stats().running, 4);
  e.script.failure = Error::internal("weights: damaged");
  e.step();
  ASSERT_EQ(e.events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(e.events[i].request, i < 2 ? i + 1 : 3);
    EXPECT_EQ(e.events[i].answer, i == 3 ? 1 : 0);
    EXPECT_EQ(e.events[i].finish, FinishReason::error);
    EXPECT_EQ(e.events[i].error.message, "weights: damaged");
    EXPECT_EQ(e.events[i].last, i != 2);
    EXPECT_EQ(e.events[i].text, "");
  }
  EXPECT_TRUE(e.core->idle());
  EXPECT_EQ(e.core->stats().running, 0);
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 2);
  EXPECT_EQ(e.core->stats().kv_blocks_free, 28);
  EXPECT_EQ(e.core->stats().generated_tokens, 4) << "of the first step: one each, and two of the search";
}

// Streams whose keys cannot be read end; the others go on, and no prefix is left that may have such keys.
TEST(ExecutorSteps, StreamsWhoseKeysAreUnreadEndAlone) {
  Script script;
  script.likeliest = [](const std::vector<TokenId>&) {
    return std::vector<TokenLogprob>{{1, -0.5f}, {2, -1.0f}, {4, -3.0f}, {5, -4.0f}};
  };
  ScriptedEngine e(scripted_options(40, 6), nullptr, script);
  e.add(1, scripted_request(1000, 7, 9));
  e.add(2, scripted_request(2000, 7, 9));
  Request search = scripted_request(3000, 2, 9);
  search.beams = search.n = 2;
  e.add(3, search);
  e.step();
  EXPECT_EQ(e.core->stats().running, 4);
  e.script.unread = {2, 3};
  e.step();
  std::vector<std::pair<RequestId, int64_t>> ended;
  for (const TokenEvent& event : e.events) {
    if (event.finish == FinishReason::none) continue;
    ended.emplace_back(event.request, event.answer);
    EXPECT_EQ(event.finish, FinishReason::error);
    EXPECT_EQ(event.error.message,
              "KV tier disk: keys and values of this stream could not be read back from its file; send the request "
              "again");
  }
  std::ranges::sort(ended);
  EXPECT_EQ(ended, (std::vector<std::pair<RequestId, int64_t>>{{2, 0}, {3, 0}, {3, 1}}));
  EXPECT_EQ(e.streams(), "1 runs 8/9 2");
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 0);
  // In a chunk of a prompt, which samples nothing.
  e.add(4, scripted_request(4000, 40, 3));
  e.script.unread = {4};
  e.step();
  EXPECT_EQ(e.streams(), "1 runs 9/10 3");
  e.script.unread.clear();
  e.run();
  EXPECT_EQ(e.all.back().request, 1u);
  EXPECT_EQ(e.all.back().finish, FinishReason::stop);
  EXPECT_EQ(e.core->stats().kv_blocks_free + e.core->stats().kv_blocks_cached, 40);
}

// No chunk has tokens of the prompt and of the answer, and only blocks of the prompt are shared.
TEST(ExecutorSteps, PromptsAreComputedApart) {
  for (const bool apart : {true, false}) {
    Script script;
    script.prompts_apart = apart;
    ScriptedEngine e(scripted_options(20), nullptr, script);
    e.add(1, scripted_request(1000, 7, 6));
    for (int i = 0; i < 3; ++i) e.step();
    EXPECT_EQ(e.streams(), "1 runs 9/10 3");
    StepPlan away;
    away.preempted = {{1, false}};
    ASSERT_TRUE(e.core->replay(away, e.events).ok());
    EXPECT_EQ(e.core->stats().kv_blocks_cached, apart ? 1 : 2);
    if (apart) {
      EXPECT_FALSE(e.core->replay(StepPlan::parse("admit 1; 1:[4+6]*").value(), e.events).ok());
      EXPECT_EQ(e.watch(2), (Lines{"1:[4+3] | 1 runs 7/10 2 !1", "1:[7+3]* | 1 runs 10/11 3 !1"}));
    } else {
      EXPECT_EQ(e.watch(1), (Lines{"admit 1; 1:[8+2]* | 1 runs 10/11 3 !1"}));
    }
    e.run();
    EXPECT_EQ(e.core->stats().kv_blocks_cached, apart ? 1 : 3);
  }
}

}  // namespace
}  // namespace millrace
