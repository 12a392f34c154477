// Every acceptance rule in the engine: greedy answers, and sampled ones of drafts that were not drawn, are those of
// plain decoding; where answers may differ, they do not depend on the number of threads and replay from recorded plans.
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

std::string second_model(const std::string& options, const std::string& name) {
  return fmt::format("draft:{},model={}", options, golden_model(name));
}

std::vector<std::string> rules() { return {"exact", "sampling", "spectr", "specinfer", "typical"}; }

class Acceptances : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::vector<Request> greedy_requests() const {
    auto requests = mixed_requests(4, model_->info().vocab);
    for (Request& request : requests) request.sampling.temperature = 0;
    return requests;
  }
  // No sampling step that counts tokens, which a draft does not.
  std::vector<Request> plain_requests() const {
    std::vector<Request> requests;
    for (int64_t i = 0; i < 6; ++i) {
      Request r = make_request(2 * i + 1, 9 + 5 * i, 41, model_->info().vocab);
      if (i == 2) r.sampling.top_k = 20;
      if (i == 3) r.sampling.top_p = 0.8;
      if (i == 4) r.n = 3;
      requests.push_back(std::move(r));
    }
    return requests;
  }
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(Acceptances, GreedyAnswersAreThoseOfPlainDecoding) {
  const auto requests = greedy_requests();
  int64_t accepted = 0, preempted = 0;
  for (const auto& [name, o] : settings()) {
    if (name == "swaps" || name == "virtual ranges") continue;
    const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
    for (const std::string& rule : rules()) {
      for (const std::string& drafter : {second_model("k=3", "llama3"), second_model("k=3,branches=3", GetParam()),
                                         std::string("ngram:min=1,branches=2")}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", name, rule, drafter));
        EngineOptions drafting = o;
        drafting.drafter = drafter;
        drafting.acceptance = rule;
        auto core = make_core(model_, drafting);
        ASSERT_TRUE(core);
        const DraftOutcome run = run_requests(*core, requests, 1);
        EXPECT_EQ(run.emitted, plain.emitted);
        EXPECT_GT(run.stats.drafted_tokens, 0);
        accepted += run.stats.accepted_tokens;
        preempted += run.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(preempted, 10);
}

// What n-grams propose is no draw, so every rule that keeps the distribution gives plain sampling's tokens. `exact`
// does with every draft.
TEST_P(Acceptances, SampledAnswersOfDraftsWithoutOddsAreThoseOfPlainSampling) {
  const auto requests = mixed_requests(6, model_->info().vocab);
  const EngineOptions o = options(2, 40, 8);
  const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
  for (const auto& [rule, drafter] : {std::pair("sampling", std::string("ngram:min=1")),
                                      {"spectr", "ngram:min=1,branches=3"},
                                      {"specinfer", "suffix:min=1,p=0,history=512"},
                                      {"exact", second_model("k=3,branches=3", "llama3")},
                                      {"exact", second_model("k=3,branches=2", GetParam())}}) {
    SCOPED_TRACE(fmt::format("{}, {}", rule, drafter));
    EngineOptions drafting = o;
    drafting.drafter = drafter;
    drafting.acceptance = rule;
    auto core = make_core(model_, drafting);
    ASSERT_TRUE(core);
    const DraftOutcome run = run_requests(*core, requests, 1);
    EXPECT_EQ(run.emitted, plain.emitted);
    EXPECT_GT(run.stats.drafted_tokens, 0);
  }
}

// p is q, so that one branch is always accepted; and of several the first one is, whose rows are those of a chain.
TEST_P(Acceptances, TheModelItselfIsAccepted) {
  const auto requests = plain_requests();
  for (const auto& [rule, branches] : {std::pair("sampling", 1),
                                       {"specinfer", 1},
                                       {"spectr", 1},
                                       {"exact", 1},
                                       {"specinfer", 3},
                                       {"spectr", 3},
                                       {"exact", 3}}) {
    SCOPED_TRACE(fmt::format("{}, {} branches", rule, branches));
    EngineOptions o = options(3);
    o.drafter = second_model(fmt::format("k=4,branches={}", branches), GetParam());
    o.acceptance = rule;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core);
    const DraftOutcome run = run_requests(*core, requests, 2);
    EXPECT_GT(run.stats.drafted_tokens, 100);
    if (branches == 1) {
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
    } else {  // 41 tokens: four of five come from drafts while a whole tree has room
      EXPECT_GE(run.stats.accepted_tokens * 10, run.stats.generated_tokens * 7);
    }
  }
}

TEST_P(Acceptances, AnswersDoNotDependOnThreads) {
  const auto requests = mixed_requests(7, model_->info().vocab);
  for (const std::string& rule : rules()) {
    SCOPED_TRACE(rule);
    std::vector<Emitted> emitted;
    for (const int threads : {1, 3}) {
      EngineOptions o = options(threads, 48, 8);
      o.drafter = second_model("k=2,branches=3", "llama3");
      o.acceptance = rule;
      auto core = make_core(model_, o);
      ASSERT_TRUE(core);
      emitted.push_back(run_requests(*core, requests, 1).emitted);
    }
    EXPECT_EQ(emitted[0], emitted[1]);
  }
}

TEST_P(Acceptances, RecordedPlansReplay) {
  const auto requests = mixed_requests(5, model_->info().vocab);
  for (const std::string& rule : rules()) {
    SCOPED_TRACE(rule);
    EngineOptions o = options(1, 40, 8);
    o.drafter = second_model("k=3,branches=2", "llama3");
    o.acceptance = rule;
    auto first = make_core(model_, o), second = make_core(model_, o);
    ASSERT_TRUE(first && second);
    for (size_t i = 0; i < requests.size(); ++i)
      for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
    std::vector<TokenEvent> recorded, replayed;
    while (!first->idle()) {
      const std::string plan = first->step(recorded).to_string();
      ASSERT_TRUE(second->replay(StepPlan::parse(plan).value(), replayed).ok()) << plan;
    }
    EXPECT_GT(first->stats().drafted_tokens, 0);
    ASSERT_EQ(recorded.size(), replayed.size());
    for (size_t i = 0; i < recorded.size(); ++i) EXPECT_EQ(written(recorded[i]), written(replayed[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Acceptances, ::testing::Values("llama", "gemma3", "deepseek2"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
