// Each policy's shares, called directly: which running streams, in which order, and how many tokens of a budget.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/orders.h"
#include "schedule/schedule_test.h"

namespace millrace {
namespace {

using namespace testing;

std::string text_of(const std::vector<Share>& shares) {
  std::string out;
  for (const Share& share : shares)
    out += fmt::format("{}{}:{}", out.empty() ? "" : " ", share.stream->id, share.tokens);
  return out;
}

std::string shares(PlannerHarness& harness, int64_t budget) {
  std::vector<Share> out;
  harness.planner->policy().share(harness.view(), budget, out);
  return text_of(out);
}

// Two streams that decode, two prompts with 40 and 30 tokens left.
void run_four(PlannerHarness& harness) {
  harness.run(1, 40, 0, 0), harness.run(2, 8, 5, 12), harness.run(3, 50, 0, 20), harness.run(4, 8, 1, 8);
}

struct Case {
  const char* policy;
  int64_t budget;
  const char* shares;
};

void try_cases(std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    PlannerHarness harness(one.policy);
    run_four(harness);
    EXPECT_EQ(shares(harness, one.budget), one.shares) << one.policy << " " << one.budget;
  }
}

TEST(PolicyShares, DecodesComeFirstThenPromptsInOrder) {
  for (const char* policy : {"fcfs", "decode_first", "vtc", "shortest_predicted", "priority", "deadline", "stall_free"})
    try_cases({{policy, 100, "2:1 4:1 1:40 3:30"},
               {policy, 50, "2:1 4:1 1:40 3:8"},
               {policy, 42, "2:1 4:1 1:40"},
               {policy, 3, "2:1 4:1 1:1"},
               {policy, 2, "2:1 4:1"},
               {policy, 1, "2:1 4:1"}});
}

TEST(PolicyShares, PromptsTogetherStayWithinTheirOwnBudget) {
  PlannerHarness harness("fcfs");
  run_four(harness);
  for (auto [prompts, expected] :
       {std::pair{100, "2:1 4:1 1:40 3:30"}, {41, "2:1 4:1 1:40 3:1"}, {1, "2:1 4:1 1:1"}, {0, "2:1 4:1"}}) {
    std::vector<Share> out;
    share_decodes_first(harness.view(), 100, prompts, out);
    EXPECT_EQ(text_of(out), expected) << prompts;
  }
}

TEST(PolicyShares, DecodeFirstFillsStepsOfItsSize) {
  try_cases({{"decode_first:step_tokens=0", 60, "2:1 4:1 1:40 3:18"},
             {"decode_first:step_tokens=1", 60, "2:1 4:1"},
             {"decode_first:step_tokens=3", 60, "2:1 4:1 1:1"},
             {"decode_first:step_tokens=80", 60, "2:1 4:1 1:40 3:18"}});
}

TEST(PolicyShares, PrefillFirstDoesNotSplitPromptsThatFitInAStep) {
  try_cases({{"prefill_first", 100, "1:40 3:30"},
             {"prefill_first", 70, "1:40 3:30"},
             {"prefill_first", 69, "1:40"},
             {"prefill_first", 40, "1:40"},
             {"prefill_first", 39, "1:39"},
             {"prefill_first", 1, "1:1"}});
  PlannerHarness single("prefill_first");
  single.run(1, 40, 0, 0), single.run(2, 1, 0, 0);
  EXPECT_EQ(shares(single, 41), "1:40 2:1") << "a prompt of one token is a prompt";
  EXPECT_EQ(shares(single, 0), "") << "no share of 0 tokens";
}

TEST(PolicyShares, OrcaRunsPromptsWholeOrAlone) {
  try_cases({{"orca", 100, "1:40 2:1 3:30 4:1"},
             {"orca", 72, "1:40 2:1 3:30 4:1"},
             {"orca", 71, "1:40 2:1 3:30"},
             {"orca", 70, "1:40 2:1 4:1"},
             {"orca", 42, "1:40 2:1 4:1"},
             {"orca", 41, "1:40 2:1"},
             {"orca", 39, "1:39"},
             {"orca", 0, ""}});
}

TEST(PolicyShares, StallFreeSplitsPromptsNextToDecodes) {
  try_cases({{"stall_free:chunk=32", 100, "2:1 4:1 1:30"},
             {"stall_free:chunk=50", 100, "2:1 4:1 1:40 3:8"},
             {"stall_free:chunk=2", 100, "2:1 4:1 1:1"},
             {"stall_free:chunk=1", 100, "2:1 4:1 1:1"}});
  PlannerHarness prompts("stall_free:chunk=16");
  prompts.run(1, 40, 0, 0), prompts.run(2, 40, 0, 0);
  EXPECT_EQ(shares(prompts, 64), "1:40 2:24") << "without decodes there is no stall";
}

// A step of n tokens takes n / 2 seconds; the target is 8 s.
TEST(PolicyShares, StallFreeUsesTheWholeTimeTarget) {
  FixedCost cost;
  cost.step = 0, cost.token = 0.5;
  for (auto [options, budget, expected] : {std::tuple{"tbt_ms=8000", 100, "2:1 4:1 1:16"},
                                           {"tbt_ms=8000,least=1", 100, "2:1 4:1 1:14"},
                                           {"tbt_ms=8250,least=1", 100, "2:1 4:1 1:14"},
                                           {"tbt_ms=8500,least=1", 100, "2:1 4:1 1:15"},
                                           {"tbt_ms=8000,least=1", 10, "2:1 4:1 1:8"},
                                           {"tbt_ms=8000,least=20", 10, "2:1 4:1 1:8"},
                                           {"tbt_ms=1000,least=1", 100, "2:1 4:1 1:1"}}) {
    PlannerHarness harness(fmt::format("stall_free:{}", options));
    harness.cost = &cost;
    run_four(harness);
    EXPECT_EQ(shares(harness, budget), expected) << options << " " << budget;
  }
}

TEST(PolicyShares, PriorityAndDeadlineFollowTheirOrder) {
  PlannerHarness priority("priority");
  run_four(priority);
  priority.streams[1]->request.priority = -1, priority.streams[2]->request.priority = 1;
  priority.streams[3]->request.priority = 2;
  EXPECT_EQ(shares(priority, 50), "4:1 2:1 3:30 1:18");
  EXPECT_EQ(shares(priority, 50), "4:1 2:1 3:30 1:18") << "the same again";
  PlannerHarness deadline("deadline");
  run_four(deadline);
  deadline.streams[2]->times.deadline = 9, deadline.streams[3]->times.deadline = 1;
  EXPECT_EQ(shares(deadline, 50), "4:1 2:1 3:30 1:18");
  deadline.streams[0]->times.deadline = 8;
  EXPECT_EQ(shares(deadline, 50), "4:1 2:1 1:40 3:8");
}

TEST(PolicyPromises, WholeAnswerOrCurrentTokensPlusOne) {
  for (const char* policy :
       {"fcfs", "prefill_first", "decode_first", "stall_free", "skip_join_mlfq", "vtc", "priority", "deadline"}) {
    for (auto [reserve, max_total, tokens] : {std::tuple{"whole", 100, 100},
                                              {"whole", 16, 16},
                                              {"prompt", 100, 17},
                                              {"prompt", 17, 17},
                                              {"prompt", 16, 16}}) {
      PlannerHarness harness(fmt::format("{}:reserve={}", policy, reserve));
      const Sequence& stream = harness.wait(1, 10, 6, max_total);
      EXPECT_EQ(harness.planner->policy().promise(stream, harness.limits), tokens)
          << policy << " " << reserve << " " << max_total;
    }
  }
}

TEST(PolicyPromises, OrcaReservesByItsRoomOption) {
  struct Known {
    const char* room;
    int64_t known, context, promised;
  };
  for (const Known& one : {Known{"max", 5, 160, 160},
                           {"max", 5, 20, 40},
                           {"pow2", -1, 160, 160},
                           {"oracle", -1, 20, 40},
                           {"pow2", 0, 160, 11},
                           {"pow2", 5, 160, 18},
                           {"pow2", 8, 160, 18},
                           {"pow2", 9, 160, 26},
                           {"oracle", 0, 160, 10},
                           {"oracle", 5, 160, 15}}) {
    PlannerHarness harness(fmt::format("orca:room={}", one.room));
    Sequence& stream = harness.wait(1, 10, 0, 40);
    stream.request.known_tokens = one.known;
    harness.limits.context = one.context;
    EXPECT_EQ(harness.planner->policy().promise(stream, harness.limits), one.promised) << one.room << " " << one.known;
  }
}

}  // namespace
}  // namespace millrace
