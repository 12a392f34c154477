// Drafted tokens change the number of steps and nothing else: every event of every stream is the one of plain decoding,
// whatever the drafter, the sampling, the constraint, the memory, and the streams beside it.
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

class EngineDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(EngineDrafts, EventsAreThoseOfPlainDecoding) {
  ASSERT_TRUE(model_);
  int64_t accepted = 0, preempted = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      const DraftOutcome plain = run_requests(*core_with(model_, o), requests, 1);
      EngineOptions drafting = o;
      for (const char* drafter : {"ngram:n=3,min=1,k=5", "suffix:min=1,k=5,p=0,history=512", "mostly right",
                                  "best:of=ngram:min=1;k=3+suffix:min=1;history=512"}) {
        SCOPED_TRACE(fmt::format("round {}, {}, {}", round, name, drafter));
        const bool scripted = std::string(drafter) == "mostly right";
        drafting.drafter = scripted ? "ngram" : drafter;
        const bool chosen = std::string(drafter).starts_with("best");  // how much of it runs depends on the time
        drafting.draft_length = chosen ? "auto" : "fixed";
        auto core = core_with(model_, drafting, scripted ? scripted_drafter(plain.truth, 5, 0.3) : nullptr);
        const DraftOutcome drafted = run_requests(*core, requests, 1);
        EXPECT_EQ(drafted.emitted, plain.emitted);
        if (!chosen) {
          EXPECT_GT(drafted.stats.drafted_tokens, 0);
        }
        accepted += drafted.stats.accepted_tokens;
        preempted += drafted.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(preempted, 10);
}

// The rows of a draft are the bits that single steps give, and a draft commits as many tokens as are right.
TEST_P(EngineDrafts, RowsOfADraftAreThoseOfSingleSteps) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  Request request = make_request(2, 37, 43, vocab);
  auto plain_core = make_core(model_, options());
  ASSERT_TRUE(plain_core->add(1, request).ok());
  const Shown plain = run_all(*plain_core, vocab)[1];
  const Truth truth{{1, plain.tokens}};
  EngineOptions o = options();
  o.drafter = "ngram:k=6";
  auto core = core_with(model_, o, scripted_drafter(truth, 6, 0));
  ASSERT_TRUE(core->add(1, request).ok());
  std::vector<std::vector<float>> rows;
  std::vector<TokenEvent> events;
  for (int64_t steps = 0; !core->idle(); ++steps) {
    events.clear();
    const StepPlan& plan = core->step(events);
    ASSERT_EQ(plan.chunks.size(), 1u);
    const int64_t outputs = plan.chunks.front().outputs();
    EXPECT_EQ(outputs, steps == 0 ? 1 : 7);  // 43 tokens = 1 + 6 x 7
    ASSERT_EQ(std::ssize(events), outputs);
    for (int64_t i = 0; i < outputs; ++i)
      rows.emplace_back(core->last_logits() + i * vocab, core->last_logits() + (i + 1) * vocab);
  }
  ASSERT_EQ(rows.size(), plain.logits.size());
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(std::memcmp(rows[i].data(), plain.logits[i].data(), rows[i].size() * sizeof(float)), 0) << i;
  EXPECT_EQ(core->stats().drafted_tokens, 36);
  EXPECT_EQ(core->stats().accepted_tokens, 36);
}

// Half of each answer is predicted, and after a gap its end: with a drafter of its own, one of trees, and none besides.
TEST_P(EngineDrafts, PredictionsChangeTheStepsOnly) {
  ASSERT_TRUE(model_);
  auto requests = mixed_requests(4, model_->info().vocab);
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 1);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto answer = plain.truth.find(i + 1);
    if (answer == plain.truth.end()) continue;
    auto& prediction = requests[i].prediction = answer->second;
    const auto middle = prediction.begin() + std::ssize(prediction) / 2;
    prediction.erase(middle, middle + std::min<ptrdiff_t>(3, prediction.end() - middle));
  }
  EXPECT_EQ(run_requests(*make_core(model_, options()), requests, 1).stats.drafted_tokens, 0) << "without a drafter";
  for (const char* drafter : {"prediction:k=6", "ngram:n=3,min=3,k=6", "token_recycling:k=2,tokens=6"}) {
    SCOPED_TRACE(drafter);
    EngineOptions o = options();
    o.drafter = drafter;
    auto core = core_with(model_, o);
    const DraftOutcome drafted = run_requests(*core, requests, 1);
    EXPECT_EQ(drafted.emitted, plain.emitted);
    EXPECT_GT(drafted.stats.accepted_tokens, plain.stats.generated_tokens / 3);
    int64_t accepted = 0;
    for (size_t i = 0; i < kDraftPositions; ++i) {
      EXPECT_LE(drafted.stats.accepted_at[i], drafted.stats.drafted_at[i]);
      if (i > 0) {
        EXPECT_LE(drafted.stats.drafted_at[i], drafted.stats.drafted_at[i - 1]);
      }
      accepted += drafted.stats.accepted_at[i];
    }
    EXPECT_EQ(accepted, drafted.stats.accepted_tokens);
  }
}

TEST_P(EngineDrafts, AWrongDraftCommitsOneTokenAStep) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  std::vector<Request> requests = {make_request(2, 20, 30, vocab), make_request(3, 7, 30, vocab)};
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 0);
  EngineOptions o = options();
  o.drafter = "ngram:k=4";
  const DraftOutcome wrong = run_requests(*core_with(model_, o, scripted_drafter(plain.truth, 4, 2)), requests, 0);
  EXPECT_EQ(wrong.emitted, plain.emitted);
  EXPECT_EQ(wrong.steps, plain.steps);
  EXPECT_EQ(wrong.stats.accepted_tokens, 0);
  EXPECT_EQ(wrong.stats.drafted_tokens, 2 * (25 * 4 + 3 + 2 + 1));  // no draft is longer than what the answer needs
}

TEST_P(EngineDrafts, ThePrefixIndexGetsNoRejectedToken) {
  ASSERT_TRUE(model_);
  expect_kept_prefixes(model_, "ngram:k=6", [](const Truth& truth) { return scripted_drafter(truth, 6, 0.4); });
}

// Plans that are recorded with this drafter replay with the same events.
void replay_recorded_plans(const std::shared_ptr<const LanguageModel>& model, const std::string& drafter,
                           const std::string& length) {
  const auto requests = mixed_requests(5, model->info().vocab);
  EngineOptions o = options(1, 40, 8);
  o.drafter = drafter;
  o.draft_length = length;
  std::vector<std::string> plans;
  Emitted recorded, replayed;
  std::vector<TokenEvent> events;
  const auto show = [&](Emitted& emitted) {
    for (const TokenEvent& event : events) emitted[{event.request, event.answer}].push_back(written(event));
    events.clear();
  };
  auto first = make_core(model, o), second = make_core(model, o);
  for (size_t i = 0; i < requests.size(); ++i)
    for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  bool drafts = false;
  while (!first->idle()) {
    plans.push_back(first->step(events).to_string());
    drafts |= plans.back().find("]*4") != std::string::npos;
    show(recorded);
  }
  EXPECT_TRUE(drafts || length == "auto");
  for (const std::string& text : plans) {
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok()) << text;
    ASSERT_TRUE(second->replay(*plan, events).ok()) << text;
    show(replayed);
  }
  EXPECT_EQ(replayed, recorded);
}

TEST_P(EngineDrafts, RecordedPlansReplay) {
  ASSERT_TRUE(model_);
  for (const auto& [drafter, length] :
       {std::pair("ngram:min=1", "fixed"), std::pair("best:of=ngram:min=1+suffix:min=1;history=512", "auto")}) {
    SCOPED_TRACE(drafter);
    replay_recorded_plans(model_, drafter, length);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineDrafts, ::testing::Values("llama", "gemma3", "qwen3moe", "deepseek2"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
