// Drafters whose draft model is drafted for, in chains and in trees: answers are those of plain decoding, and the draft
// model's keys and values are right whatever happens to the blocks.
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

class CascadeDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  static std::string with_model(const std::string& drafter, const std::string& name) {
    return drafter + ",model=" + golden_model(name);
  }
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(CascadeDrafts, EventsAreThoseOfPlainDecoding) {
  int64_t accepted = 0, preempted = 0;
  const auto requests = mixed_requests(1, model_->info().vocab);
  for (const auto& [name, o] : settings()) {
    const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
    for (const std::string& drafter :
         {with_model("cascade:k=3,tail=3,bigrams=256", "llama3"), with_model("cascade:k=3,tail=2", GetParam()),
          with_model("staged:k=3,nodes=7,bigrams=256", "llama3"), with_model("staged:k=3,nodes=6", GetParam())}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, drafter));
      EngineOptions drafting = o;
      drafting.drafter = drafter;
      auto core = make_core(model_, drafting);
      ASSERT_TRUE(core);
      const DraftOutcome drafted = run_requests(*core, requests, 1);
      EXPECT_EQ(drafted.emitted, plain.emitted);
      EXPECT_GT(drafted.stats.drafted_tokens, 0);
      accepted += drafted.stats.accepted_tokens;
      preempted += drafted.stats.preemptions;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(preempted, 10);
}

// The draft model's tokens are always right, unless a key or a value of it is missing or stale.
TEST_P(CascadeDrafts, TheModelItselfDraftsWhatItSays) {
  for (const auto& [name, o] : settings()) {
    SCOPED_TRACE(name);
    EngineOptions drafting = o;
    drafting.drafter = with_model("cascade:k=4,tail=0,guess=3", GetParam());
    auto core = make_core(model_, drafting);
    ASSERT_TRUE(core);
    std::vector<Request> requests;
    for (int64_t i = 0; i < 5; ++i) requests.push_back(make_request(i, 9 + 5 * i, 40 - i, model_->info().vocab));
    const DraftOutcome run = run_requests(*core, requests, 2);
    EXPECT_GT(run.stats.drafted_tokens, 30);
    EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
  }
}

// A tree with room for the whole branch has the model's own next tokens: each step keeps them all.
TEST_P(CascadeDrafts, ATreeOfTheModelItselfIsKept) {
  for (const bool caches : {true, false}) {
    EngineOptions o = options(1, 512, 4);
    o.prefix_cache = caches;
    o.drafter = with_model("staged:k=3,nodes=16", GetParam());
    auto core = make_core(model_, o);
    ASSERT_TRUE(core);
    ASSERT_TRUE(core->add(1, make_request(1, 12, 80, model_->info().vocab)).ok());
    std::vector<TokenEvent> events;
    core->step(events);
    for (int i = 0; i < 12; ++i) {
      events.clear();
      core->step(events);
      EXPECT_EQ(events.size(), 4u) << i;
    }
  }
}

TEST_P(CascadeDrafts, PrefixesServeBothModels) {
  const int64_t vocab = model_->info().vocab;
  for (const char* drafter : {"cascade:k=2,tail=3", "staged:k=2,nodes=8"}) {
    EngineOptions o = options(1, 512, 4);
    o.drafter = with_model(drafter, GetParam());
    auto core = make_core(model_, o);
    ASSERT_TRUE(core);
    std::vector<Request> first, second;
    for (int64_t i = 0; i < 4; ++i) first.push_back(make_request(i, 11 + i, 50, vocab));
    const DraftOutcome before = run_requests(*core, first, 1);
    for (size_t i = 0; i < first.size(); ++i) {
      Request r = first[i];
      const auto& answer = before.truth.at(static_cast<RequestId>(i + 1));
      r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
      r.max_tokens = 22;
      second.push_back(std::move(r));
    }
    const int64_t cached = core->stats().cached_tokens, accepted = core->stats().accepted_tokens;
    const DraftOutcome after = run_requests(*core, second, 0);
    EXPECT_GT(core->stats().cached_tokens - cached, 4 * 40) << drafter;
    // Of 21: two a step, but fewer near the end, where the tree has no room for the branch.
    EXPECT_GE(core->stats().accepted_tokens - accepted, 4 * 11) << drafter;
    o.drafter.clear();
    o.prefix_cache = false;
    EXPECT_EQ(after.emitted, run_requests(*make_core(model_, o), second, 0).emitted) << drafter;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CascadeDrafts, ::testing::Values("llama", "gemma3", "deepseek2"),
                         [](const auto& one) { return one.param; });

TEST(CascadeDraft, TreesAreRefusedWhereTokensCannotMove) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.drafter = "staged:model=" + golden_model("llama");
  o.evictor = "streamingllm:sinks=2,window=14";
  const auto made = EngineCore::create(model, o);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
