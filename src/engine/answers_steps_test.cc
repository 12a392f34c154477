// Requests with several answers, step by step: further answers wait for the first one's prompt, share its blocks, and
// continue alone if the first one is gone.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions without_prefixes(int64_t blocks, int64_t streams = 4) {
  EngineOptions o = scripted_options(blocks, streams);
  o.prefix_cache = false;
  return o;
}

Request several(TokenId first, int64_t prompt, int64_t answer, int64_t n) {
  Request request = scripted_request(first, prompt, answer);
  request.n = n;
  return request;
}

TEST(AnswersSteps, ShareFullPromptBlocksAndCopyTheLast) {
  ScriptedEngine e(without_prefixes(20));
  e.add(1, several(1000, 10, 4, 3));
  EXPECT_EQ(e.watch(2), (Lines{"admit 1; 1:[0+10]* | 1 runs 10/11 3, 1.1 waits 0/10 0, 1.2 waits 0/10 0",
                               "admit 1.1 1.2; 1:[10+1]* 1.1:[9+1]* 1.2:[9+1]* | 1 runs 11/12 3, 1.1 runs 10/11 3 +9, "
                               "1.2 runs 10/11 3 +9"}));
  EXPECT_EQ(e.blocks(), "3 3 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
  EXPECT_EQ(e.watch(),
            (Lines{"1:[11+1]* 1.1:[10+1]* 1.2:[10+1]* | 1 runs 12/13 3, 1.1 runs 11/12 3 +9, 1.2 runs 11/12 3 +9",
                   "1:[12+1]* 1.1:[11+1]* 1.2:[11+1]* | 1.1 runs 12/13 3 +9, 1.2 runs 12/13 3 +9",
                   "1.1:[12+1]* 1.2:[12+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 5 prompt 12 cached 18 generated 12 preempted 0 again 0 out 0 in 0");
  std::vector<TokenId> tokens[3];
  for (const TokenEvent& event : e.all) tokens[event.answer].push_back(event.token);
  for (TokenId answer : {0, 1, 2}) {  // seeds ascend with the answers
    const TokenId first = 101'000 + 1000 * answer;
    EXPECT_EQ(tokens[answer], (std::vector<TokenId>{first, first + 1, first + 2, first + 3}));
  }
}

// A prompt that fills its last block has no partial block to copy; its last token is computed again.
TEST(AnswersSteps, BlockAlignedPromptSharesWholeBlocks) {
  for (const auto& [prompt, blocks] :
       {std::pair(4, "1 1 1 0 0 0 0 0"), {5, "2 1 1 0 0 0 0 0"}, {8, "2 1 1 1 0 0 0 0"}, {9, "2 2 1 1 0 0 0 0"}}) {
    ScriptedEngine e(without_prefixes(8));
    e.add(1, several(1000, prompt, 3, 2));
    e.step();
    e.step();
    EXPECT_EQ(e.blocks(), blocks) << prompt;
    EXPECT_EQ(e.core->stats().prompt_tokens, prompt + 1);
    e.run();
    EXPECT_EQ(e.core->stats().kv_blocks_free, 8);
  }
}

// Consecutive requests with several answers: the further answers wait each time.
TEST(AnswersSteps, FurtherAnswersWaitForEveryRequest) {
  ScriptedEngine e(without_prefixes(20));
  for (RequestId id : {1, 2, 3}) {
    e.add(id, several(static_cast<TokenId>(1000 * id), 6, 2, 3));
    const std::string first = "admit " + std::to_string(id) + "; " + std::to_string(id) + ":[0+6]*";
    EXPECT_EQ(e.step(), first);
    e.run();
    EXPECT_EQ(e.core->stats().prompt_tokens, static_cast<int64_t>(id) * 8);
  }
}

TEST(AnswersSteps, ComputeThePromptIfTheFirstHasEnded) {
  ScriptedEngine e(without_prefixes(20, 1));
  e.add(1, several(1000, 6, 2, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2, 1.1 waits 0/6 0", "1:[6+1]* | 1.1 waits 0/6 0",
                              "admit 1.1; 1.1:[0+6]* | 1.1 runs 6/7 2", "1.1:[6+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 4 prompt 12 cached 0 generated 4 preempted 0 again 0 out 0 in 0");
  ScriptedEngine cached(scripted_options(20, 1));
  cached.add(1, several(1000, 6, 2, 2));
  EXPECT_EQ(cached.watch(), (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2, 1.1 waits 0/6 0", "1:[6+1]* | 1.1 waits 0/6 0",
                                   "admit 1.1; 1.1:[4+2]* | 1.1 runs 6/7 2 +4", "1.1:[6+1]* | "}));
}

// Cancelling other queued requests does not affect streams that wait for their prompt.
TEST(AnswersSteps, KeepWaitingWhenOthersLeaveTheQueue) {
  for (int64_t n : {1, 3}) {
    ScriptedEngine e(without_prefixes(20));
    e.add(1, several(1000, 6, 2, 3));
    e.add(2, several(2000, 6, 2, n));
    e.add(3, several(3000, 6, 2, 1));
    e.core->cancel(2);
    e.core->cancel(3);
    EXPECT_EQ(e.step(), "admit 1; 1:[0+6]*") << n;
    e.run();
    EXPECT_EQ(e.core->stats().prompt_tokens, 8);
  }
}

// The first answer is cancelled with the others, after the long prompt was computed in two steps.
TEST(AnswersSteps, AreCancelledTogether) {
  ScriptedEngine e(without_prefixes(20));
  e.add(1, several(1000, 20, 4, 3));
  e.add(2, several(2000, 3, 3, 1));
  e.step();
  e.core->cancel(1);
  e.step();
  std::vector<int64_t> answers;
  for (const TokenEvent& event : e.events) {
    if (event.request != 1) continue;
    EXPECT_EQ(event.finish, FinishReason::cancelled);
    EXPECT_EQ(event.token, -1);
    EXPECT_EQ(event.last, answers.size() == 2);
    answers.push_back(event.answer);
  }
  EXPECT_EQ(answers, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(e.streams(), "2 runs 3/4 1");
  e.run();
  EXPECT_EQ(e.core->stats().kv_blocks_free, 20);
}

// The others do not wait for a first answer that is swapped out.
TEST(AnswersSteps, DoNotWaitForASwappedOutFirstAnswer) {
  for (bool busy : {false, true}) {
    EngineOptions o = without_prefixes(8, 2);
    o.policy = "priority:reserve=prompt";
    o.kv_tier = memory_tier(40);
    ScriptedEngine e(o);
    e.script.swap_seconds = 1e-3;
    if (busy) e.script.tier_state = TierState::busy;
    e.add(1, several(1000, 20, 2, 2));  // five of eight blocks, in two steps
    e.step();
    Request urgent = scripted_request(2000, 12, 3);
    urgent.priority = 1;
    e.add(2, urgent);
    if (busy) {
      EXPECT_EQ(
          e.watch(4),
          (Lines{"preempt 1~; admit 2; 2:[0+12]* | 2 runs 12/13 3, 1 leaves 16/20 4 !1, 1.1 waits 0/20 0",
                 "2:[12+1]* | 2 runs 13/14 4, 1 leaves 16/20 4 !1, 1.1 waits 0/20 0",
                 "2:[13+1]* | 1 leaves 16/20 4 !1, 1.1 waits 0/20 0", " | 1 leaves 16/20 4 !1, 1.1 waits 0/20 0"}));
    } else {
      EXPECT_EQ(
          e.watch(),
          (Lines{"preempt 1~; admit 2; 2:[0+12]* | 2 runs 12/13 3, 1 leaves 16/20 4 !1, 1.1 waits 0/20 0",
                 "2:[12+1]* | 2 runs 13/14 4, 1 away 16/20 0 !1, 1.1 waits 0/20 0",
                 "2:[13+1]* | 1 away 16/20 0 !1, 1.1 waits 0/20 0", "admit 1; | 1 loads 16/20 4 !1, 1.1 waits 0/20 0",
                 "1:[16+4]* | 1 runs 20/21 5 !1, 1.1 waits 0/20 0",
                 "admit 1.1; 1:[20+1]* 1.1:[19+1]* | 1.1 runs 20/21 5 +19", "1.1:[20+1]* | "}));
    }
    e.script.tier_state = TierState::ready;
    e.run();
    EXPECT_EQ(e.figures(), "steps 7 prompt 33 cached 19 generated 7 preempted 1 again 0 out 16 in 16");
  }
}

// Preempted answers have tokens of their own and share nothing when they resume.
TEST(AnswersSteps, PreemptedAnswersResumeIndependently) {
  EngineOptions o = without_prefixes(7);
  o.policy = "fcfs:reserve=prompt";
  ScriptedEngine e(o);
  e.add(1, several(1000, 9, 7, 3));
  EXPECT_EQ(
      e.watch(),
      (Lines{"admit 1; 1:[0+9]* | 1 runs 9/10 3, 1.1 waits 0/9 0, 1.2 waits 0/9 0",
             "admit 1.1 1.2; 1:[9+1]* 1.1:[8+1]* 1.2:[8+1]* | 1 runs 10/11 3, 1.1 runs 9/10 3 +8, 1.2 runs 9/10 3 +8",
             "1:[10+1]* 1.1:[9+1]* 1.2:[9+1]* | 1 runs 11/12 3, 1.1 runs 10/11 3 +8, 1.2 runs 10/11 3 +8",
             "1:[11+1]* 1.1:[10+1]* 1.2:[10+1]* | 1 runs 12/13 3, 1.1 runs 11/12 3 +8, 1.2 runs 11/12 3 +8",
             "1:[12+1]* 1.1:[11+1]* 1.2:[11+1]* | 1 runs 13/14 4, 1.1 runs 12/13 3 +8, 1.2 runs 12/13 3 +8",
             "squeeze 1.2; 1:[13+1]* 1.1:[12+1]* | 1 runs 14/15 4, 1.1 runs 13/14 4 +8, 1.2 waits 0/13 0 +8 !1",
             "1:[14+1]* 1.1:[13+1]* | 1.1 runs 14/15 4 +8, 1.2 waits 0/13 0 +8 !1",
             "1.1:[14+1]* | 1.2 waits 0/13 0 +8 !1", "admit 1.2; 1.2:[0+13]* | 1.2 runs 13/14 4 +8 !1",
             "1.2:[13+1]* | 1.2 runs 14/15 4 +8 !1", "1.2:[14+1]* | "}));
  EXPECT_EQ(e.figures(), "steps 11 prompt 20 cached 16 generated 21 preempted 1 again 12 out 0 in 0");
}

TEST(AnswersSteps, BestHasTheHighestMeanLogprob) {
  EngineOptions o = without_prefixes(20);
  Script script;
  script.logprob = [](const Sequence& s) {
    return answer_of(s.id) == 2   ? -0.5f
           : answer_of(s.id) == 1 ? -0.25f - 0.5f * static_cast<float>(s.generated())
                                  : -1.0f;
  };
  ScriptedEngine e(o, nullptr, script);
  Request request = several(1000, 6, 3, 2);
  request.best_of = 3;
  e.add(1, request);
  e.run();
  std::vector<std::string> seen;
  for (const TokenEvent& event : e.all)
    seen.push_back(fmt::format("{} {} {}{:g}{}", event.answer, event.token, finish_reason_name(event.finish),
                               event.score, event.last ? " last" : ""));
  EXPECT_EQ(seen, (Lines{"0 103000 0", "0 103001 0", "0 103002 stop-0.5", "1 102000 0", "1 102001 0",
                         "1 102002 stop-0.75 last"}));
  EXPECT_EQ(e.all.back().logprob.logprob, 0);  // none were requested
}

}  // namespace
}  // namespace millrace
