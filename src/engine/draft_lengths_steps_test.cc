// How much of a draft a step verifies, step by step: by what the step costs, and by what was kept before.
#include "engine/draft_driver.h"
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

TokenId scripted_token(const Sequence& s, int64_t generated) {
  return static_cast<TokenId>(100'000 + 1000 * s.request.sampling.seed + static_cast<uint64_t>(generated));
}

// Drafts the scripted answer, always wrong at every `wrong`-th token; 0: never.
class LengthDrafter final : public TextDrafter {
 public:
  explicit LengthDrafter(int64_t wrong) : wrong_(wrong) {}
  void propose(const Sequence& s, int64_t most, Draft& out) override {
    for (int64_t i = s.generated(); i < s.generated() + most; ++i)
      out.tokens.push_back(wrong_ > 0 && i % wrong_ == 0 ? 7 : scripted_token(s, i));
  }

 private:
  int64_t wrong_;
};

std::unique_ptr<Drafter> length_drafter(int64_t longest, int64_t wrong) {
  return text_drafter({.longest = longest}, std::make_unique<LengthDrafter>(wrong));
}

struct LengthRun {
  std::unique_ptr<ScriptedEngine> engine;
  int steps = 0;
  EngineStats stats() const { return engine->core->stats(); }
};

// Answers of 48 tokens; a step costs `step` and `token` for each token.
LengthRun run_lengths(double step, double token, std::unique_ptr<Drafter> drafter, int64_t streams = 1,
                      const std::string& length = "auto") {
  EngineOptions o = scripted_options(200, streams);
  o.draft_length = length;
  o.batch_tokens = 64;
  Script script;
  script.step_seconds = step;
  script.token_seconds = token;
  LengthRun run{std::make_unique<ScriptedEngine>(o, nullptr, script, std::move(drafter))};
  for (int64_t i = 0; i < streams; ++i)
    run.engine->add(static_cast<RequestId>(i + 1), scripted_request(static_cast<TokenId>(1000 * (i + 20)), 4, 48));
  run.steps = run.engine->run();
  EXPECT_EQ(run.stats().generated_tokens, 48 * streams);
  return run;
}

TEST(DraftLengthsSteps, RightDraftsGrowWhereTokensCostLittle) {
  const LengthRun run = run_lengths(1, 0.01, length_drafter(8, 0));
  EXPECT_LE(run.steps, 9);  // 1 + 47 tokens in steps of 9, the first drafts being shorter
  EXPECT_EQ(run.stats().drafted_tokens, run.stats().accepted_tokens);
  EXPECT_GT(run.stats().draft_acceptance, 0.8);
  EXPECT_GT(run.stats().draft_length, 0);
}

// Trials aside, eight steps of one drafted token each.
TEST(DraftLengthsSteps, NothingIsVerifiedWhereATokenCostsAStep) {
  const LengthRun run = run_lengths(0.01, 1, length_drafter(8, 0));
  const DraftDecisions decisions = run.stats().draft_decisions;
  EXPECT_EQ(decisions.chosen, 0);
  EXPECT_EQ(decisions.trials, 8);
  EXPECT_EQ(decisions.declined, 48 - 1 - 2 * 8 - 1);  // the last step has no room for a draft
  EXPECT_LT(decisions.gain(), 1.05);
  EXPECT_EQ(run.steps, 48 - 8);
  EXPECT_EQ(run.stats().drafted_tokens, 8);
  EXPECT_GT(run.stats().draft_acceptance, 0.85);  // drafts that do not run are judged, too
}

TEST(DraftLengthsSteps, WrongDraftsStop) {
  const LengthRun run = run_lengths(1, 0.2, length_drafter(8, 1));
  EXPECT_EQ(run.steps, 48);
  EXPECT_LT(run.stats().drafted_tokens, 16);
  EXPECT_LT(run.stats().draft_acceptance, 0.2);
  const LengthRun fixed = run_lengths(1, 0.2, length_drafter(8, 1), 1, "fixed");
  EXPECT_GT(fixed.stats().drafted_tokens, 300);
}

// The same drafts and costs: they pay for one stream, and not where sixteen share the step.
TEST(DraftLengthsSteps, LoadEndsDrafts) {
  const LengthRun one = run_lengths(1, 0.15, length_drafter(4, 3), 1);
  EXPECT_GT(one.stats().accepted_tokens, 8);
  const LengthRun many = run_lengths(1, 0.6, length_drafter(4, 3), 16);
  EXPECT_LT(many.stats().drafted_tokens, 16 * 8);  // in the first steps, in which all is right
}

TEST(DraftLengthsSteps, TheBetterOfTwoDraftersDrafts) {
  for (const bool better_first : {true, false}) {
    auto both = length_drafter(4, better_first ? 0 : 1);
    both->texts.push_back(std::move(length_drafter(4, better_first ? 1 : 0)->texts.front()));
    const LengthRun run = run_lengths(1, 0.01, std::move(both), 1, "fixed");
    EXPECT_GE(run.stats().accepted_tokens, 36) << better_first;
    EXPECT_LE(run.stats().drafted_tokens - run.stats().accepted_tokens, 8) << better_first;
  }
}

TEST(DraftLengthsSteps, DraftsThatAreTooLongAreRefused) {
  EnginePlan plan;
  plan.drafter = length_drafter(kDraftPositions, 0);
  EXPECT_TRUE(DraftDriver::create(plan).ok());
  plan.drafter = length_drafter(kDraftPositions + 1, 0);
  EXPECT_EQ(DraftDriver::create(plan).error().kind, ErrorKind::internal);
}

// A window of four probes; what comes out of it is never a draft.
class ProbingDrafter final : public TextDrafter {
 public:
  void propose(const Sequence&, int64_t most, Draft& out) override {
    if (most < 4) return;
    out.tokens.assign(4, 7);
    out.parents.assign(4, -1);
    out.probes = 4;
  }
};

TEST(DraftLengthsSteps, AWindowThatYieldsNothingStops) {
  for (const bool cheap : {true, false}) {
    const LengthRun run = run_lengths(1, cheap ? 0 : 0.3,
                                      text_drafter({.longest = 4, .trees = true}, std::make_unique<ProbingDrafter>()));
    EXPECT_EQ(run.steps, 48);
    const auto wide = std::ranges::count_if(run.engine->script.shapes,
                                            [](const std::string& step) { return step.starts_with("5 tokens"); });
    EXPECT_GT(wide, 3) << cheap;
    EXPECT_EQ(wide <= 14, !cheap) << wide;  // 4 x 0.9^14 = 0.9 tokens do not pay for four at 0.3 / 1.3 steps each
  }
}

// An engine that learns what steps cost from its clock, with one stream of `answer` tokens.
std::unique_ptr<ScriptedEngine> learning_engine(const Script& script, int64_t answer) {
  EngineOptions o = scripted_options(answer, 1);
  o.context = answer + 4;
  o.draft_length = "auto";
  auto engine = std::make_unique<ScriptedEngine>(o, nullptr, script, length_drafter(4, 3));
  engine->add(1, scripted_request(20'000, 4, answer));
  return engine;
}

// The first steps with drafts are slow by chance: trials show that they are not.
TEST(DraftLengthsSteps, AStallOfTheFirstDraftsIsForgotten) {
  Script script;
  script.has_costs = false;
  auto engine = learning_engine(script, 200);
  int slow = 3;
  engine->script.forwarded = [&](const StepInput& input, auto) {
    if (input.chunks.front().drafted > 0 && --slow >= 0) engine->clock.advance_ns(50'000'000);
  };
  engine->run();
  const EngineStats stats = engine->core->stats();
  EXPECT_GT(stats.draft_decisions.trials, 0);
  EXPECT_GT(stats.draft_decisions.chosen, 50);
  EXPECT_GT(stats.draft_decisions.gain(), 1.05);
}

// Where each token costs ten steps, trials take what they may, on the clock, and no more.
TEST(DraftLengthsSteps, TrialsTakeABoundedShareOfTheTime) {
  Script script;
  script.has_costs = false;
  script.token_ns = 10 * script.step_ns;
  auto engine = learning_engine(script, 600);
  engine->run();
  const DraftDecisions decisions = engine->core->stats().draft_decisions;
  EXPECT_GE(decisions.trials, 4);
  EXPECT_GT(decisions.declined, 400);
  const int64_t plain = 600 * (script.step_ns + script.token_ns), prompt = 3 * script.token_ns;
  EXPECT_LE(engine->clock.now_ns() - prompt, plain + plain / 64 + 16 * (script.step_ns + script.token_ns));
}

// Recorded plans have the lengths, so they can be replayed with other times, and with another way to choose them.
TEST(DraftLengthsSteps, RecordedLengthsReplay) {
  std::vector<std::string> plans;
  const auto engine = [](double token, const char* length) {
    EngineOptions o = scripted_options(200, 2);
    o.draft_length = length;
    Script script;
    script.step_seconds = 1;
    script.token_seconds = token;
    auto made = std::make_unique<ScriptedEngine>(o, nullptr, script, length_drafter(6, 4));
    for (RequestId id : {1, 2}) made->add(id, scripted_request(static_cast<TokenId>(1000 * id), 4, 30));
    return made;
  };
  const auto recorded = engine(0.1, "auto");
  while (!recorded->core->idle()) plans.push_back(recorded->core->step(recorded->events).to_string());
  EXPECT_GT(recorded->core->stats().accepted_tokens, 0);
  for (const char* length : {"auto", "fixed"}) {
    const auto replayed = engine(5, length);
    for (const std::string& plan : plans)
      ASSERT_TRUE(replayed->core->replay(StepPlan::parse(plan).value(), replayed->events).ok()) << plan;
    ASSERT_EQ(replayed->events.size(), recorded->events.size());
    for (size_t i = 0; i < replayed->events.size(); ++i)
      EXPECT_EQ(replayed->events[i].token, recorded->events[i].token);
  }
}

}  // namespace
}  // namespace millrace
