// Drafted tokens step by step: how many a step commits, what its blocks and its reports to the policy are.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

// Drafts the scripted answer up to a mistake at the `wrong`-th generated token.
class ScriptedDrafter final : public TextDrafter {
 public:
  explicit ScriptedDrafter(int64_t wrong) : wrong_(wrong) {}
  void propose(const Sequence& s, int64_t most, Draft& out) override {
    for (int64_t i = s.generated(); i < s.generated() + most; ++i)
      out.tokens.push_back(
          i == wrong_ ? 7 : static_cast<TokenId>(100'000 + 1000 * s.request.sampling.seed + static_cast<uint64_t>(i)));
  }

 private:
  int64_t wrong_;
};

std::unique_ptr<ScriptedEngine> engine_with(const EngineOptions& o, int64_t wrong,
                                            std::unique_ptr<SchedulerPolicy> policy = nullptr) {
  return std::make_unique<ScriptedEngine>(o, std::move(policy), Script{},
                                          text_drafter({.longest = 3}, std::make_unique<ScriptedDrafter>(wrong)));
}

TEST(DraftsSteps, ARightDraftCommitsAllItsTokens) {
  const auto engine = engine_with(scripted_options(20), -1);
  engine->add(1, scripted_request(1000, 5, 12));
  EXPECT_EQ(engine->watch(), (Lines{"admit 1; 1:[0+5]* | 1 runs 5/6 2", "1:[5+4]*3 | 1 runs 9/10 3",
                                    "1:[9+4]*3 | 1 runs 13/14 4", "1:[13+3]*2 | "}));
  EXPECT_EQ(engine->script.shapes.at(1), "4 tokens 4 outputs 9 keys 30 pairs 0.001 s");
  ASSERT_EQ(engine->all.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(engine->all[i].token, static_cast<TokenId>(101'000 + i));
  const RequestTimings& t = engine->all.back().timings;
  EXPECT_EQ(t.target_passes, 4);
  EXPECT_EQ(t.drafted_tokens, 8);
  EXPECT_EQ(t.accepted_tokens, 8);
}

TEST(DraftsSteps, TokensBehindAMistakeAreRejected) {
  const auto engine = engine_with(scripted_options(20), 2);
  engine->add(1, scripted_request(1000, 5, 8));
  EXPECT_EQ(engine->watch(), (Lines{"admit 1; 1:[0+5]* | 1 runs 5/6 2", "1:[5+4]*3 | 1 runs 7/8 3",
                                    "1:[7+4]*3 | 1 runs 11/12 3", "1:[11+1]* | "}));
  const EngineStats stats = engine->core->stats();
  EXPECT_EQ(stats.drafted_tokens, 6);
  EXPECT_EQ(stats.accepted_tokens, 4);
  EXPECT_EQ(stats.generated_tokens, 8);
}

// The answer ends within a draft: what is behind its end is neither emitted nor stored in the prefix index.
TEST(DraftsSteps, AnEndWithinADraftEndsTheStream) {
  const auto engine = engine_with(scripted_options(20), -1);
  Request request = scripted_request(1000, 5, 3);
  request.max_tokens = 20;
  engine->add(1, request);
  EXPECT_EQ(engine->watch(), (Lines{"admit 1; 1:[0+5]* | 1 runs 5/6 2", "1:[5+4]*3 | "}));
  EXPECT_EQ(engine->all.size(), 3u);
  EXPECT_EQ(engine->all.back().finish, FinishReason::stop);
  EXPECT_EQ(engine->core->stats().accepted_tokens, 1);
  EXPECT_EQ(engine->core->stats().kv_blocks_cached, 1);  // 7 tokens were computed for good
}

// Blocks that only rejected tokens needed are free again after the step, in a stream that is promised no more.
TEST(DraftsSteps, BlocksOfRejectedTokensAreGivenBack) {
  EngineOptions o = scripted_options(20);
  o.policy = "fcfs:reserve=prompt";
  const auto engine = engine_with(o, 3);
  engine->add(1, scripted_request(1000, 6, 10));
  EXPECT_EQ(engine->watch(4), (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2", "1:[6+4]*3 | 1 runs 9/10 3",
                                     "1:[9+4]*3 | 1 runs 13/14 4", "1:[13+2]*1 | "}));
  const auto wrong = engine_with(o, 1);
  wrong->add(1, scripted_request(1000, 6, 10));
  EXPECT_EQ(wrong->watch(2), (Lines{"admit 1; 1:[0+6]* | 1 runs 6/7 2", "1:[6+4]*3 | 1 runs 7/8 2"}));
}

// What a policy is told: each token once, rejected ones never.
class Listening final : public SchedulerPolicy {
 public:
  struct Heard {
    int64_t tokens = 0, sampled = 0, kept = 0;
    bool operator==(const Heard&) const = default;
  };
  explicit Listening(Heard& heard) : heard_(heard) {}
  void share(const ScheduleView& view, int64_t, std::vector<Share>& out) override {
    for (const Sequence* stream : view.running) out.push_back({stream, stream->remaining()});
  }
  const Sequence* victim(const ScheduleView&, const Sequence&) override { return nullptr; }
  void observe(const ScheduleEvent& event) override {
    if (event.kind != ScheduleEvent::Kind::ran) return;
    heard_.tokens += event.tokens;
    heard_.sampled += event.sampled;
    heard_.kept += event.kept;
  }

 private:
  Heard& heard_;
};

TEST(DraftsSteps, PoliciesHearOfKeptTokensOnly) {
  Listening::Heard heard;
  const auto engine = engine_with(scripted_options(20), 6, std::make_unique<Listening>(heard));
  engine->add(1, scripted_request(1000, 5, 12));
  EXPECT_EQ(engine->run(), 5);
  EXPECT_EQ(heard, (Listening::Heard{16, 12, 16}));
}

TEST(DraftsSteps, PlansFromOutsideMustFitTheDraft) {
  const auto engine = engine_with(scripted_options(20), -1);
  engine->add(1, scripted_request(1000, 5, 12));
  engine->step();
  for (const char* text : {"1:[5+5]*4", "1:[5+2]*", "1:[5+4]*2"})
    EXPECT_FALSE(engine->core->replay(StepPlan::parse(text).value(), engine->events).ok()) << text;
  EXPECT_TRUE(engine->core->replay(StepPlan::parse("1:[5+3]*2").value(), engine->events).ok());
  EXPECT_EQ(engine->streams(), "1 runs 8/9 2");
}

}  // namespace
}  // namespace millrace
