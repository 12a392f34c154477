// Drafts on models with recurrent layers: every drafter changes the number of steps and nothing else, in chains and in
// trees; no token runs twice; and every slot of states is free again.
#include <unistd.h>

#include "models/skipped_blocks.h"
#include "properties/draft_runs.h"
#include "run/drafting/skip_choice.h"

namespace millrace {
namespace {

using namespace testing;

const std::string kGolden = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/",
                  kHybridHeads = kGolden + "draft_heads/";

std::shared_ptr<const LanguageModel> hybrid(const std::string& name) {
  return load_for(name.starts_with("mtp") ? kHybridHeads + name : golden_model(name), *select_isa());
}

std::vector<std::string> hybrid_drafters(const std::string& model) {
  std::vector<std::string> all = {"ngram:min=1,k=8",
                                  "ngram:n=3,min=1,k=3,branches=4",
                                  "suffix:k=8",
                                  "best",
                                  "lookahead:w=3,n=3,g=2",
                                  "token_recycling:k=4,tokens=9",
                                  "draft:k=3,model=" + golden_model("llama3"),
                                  "cascade:k=3,model=" + golden_model("llama3"),
                                  "self:k=4,mlp=0",
                                  "self:attn=0-1,mlp=0-1,p=0.05",
                                  "layerskip:exit=1,k=3"};
  if (!model.starts_with("mtp")) return all;
  const auto trained = [](const char* drafter, const char* folder) { return drafter + kHybridHeads + folder; };
  for (const std::string& drafter :
       {std::string("mtp:k=3"), std::string("mtp:k=3,tokens=6,top=2"), trained("medusa:k=3,tokens=6,model=", "medusa"),
        trained("eagle:k=3,top=1,model=", "eagle"), trained("eagle:k=3,tokens=6,top=2,model=", "eagle"),
        trained("kangaroo:p=0,k=4,model=", "kangaroo"), trained("pass:k=3,model=", "pass")})
    all.push_back(drafter);
  return all;
}

class RecurrentDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ = hybrid(GetParam());
};

TEST_P(RecurrentDrafts, EventsAreThoseOfPlainDecoding) {
  const auto all = settings();
  const auto requests = mixed_requests(1, model_->info().vocab);
  std::vector<Emitted> plain;
  for (const auto& [name, o] : all) plain.push_back(run_requests(*make_core(model_, o), requests, 1).emitted);
  int64_t preempted = 0;
  size_t next = GetParam().size();  // each drafter runs in one setting, another one for each model
  for (const std::string& drafter : hybrid_drafters(GetParam())) {
    const size_t at = next++ % all.size();
    SCOPED_TRACE(fmt::format("{}, {}", all[at].first, drafter));
    EngineOptions drafting = all[at].second;
    drafting.drafter = drafter;
    drafting.draft_length = next % 3 == 0 ? "auto" : "fixed";
    auto core = make_core(model_, drafting);
    ASSERT_TRUE(core);
    const DraftOutcome drafted = run_requests(*core, requests, 1);
    EXPECT_EQ(drafted.emitted, plain[at]);
    EXPECT_EQ(drafted.stats.states_free, drafted.stats.states);
    // Small steps may hold no tree, and measured times may say that no draft is worth it.
    if (all[at].first != "small steps" && drafting.draft_length == "fixed") {
      EXPECT_GT(drafted.stats.drafted_tokens, 0);
    }
    preempted += drafted.stats.preemptions;
  }
  EXPECT_GT(preempted, 5);
}

// With nothing left out the model drafts the answer, unless a draft runs on a wrong state or moves the stream's on.
TEST_P(RecurrentDrafts, TheWholeModelDraftsWhatItSays) {
  const std::string none = fmt::format("{}hybrid_skips_{}.json", ::testing::TempDir(), ::getpid());
  const std::vector<uint8_t> nothing(static_cast<size_t>(model_->parts().model->spec().layer_count()));
  ASSERT_TRUE(write_skips(none, {nothing, nothing}, *model_).ok());
  std::vector<Request> requests;
  for (int64_t i = 0; i < 5; ++i) requests.push_back(make_request(i, 9 + 5 * i, 40 - i, model_->info().vocab));
  for (const auto& [name, o] : settings()) {
    SCOPED_TRACE(name);
    EngineOptions drafting = o;
    drafting.drafter = "self:k=4,p=0,skip=" + none;
    auto core = make_core(model_, drafting);
    ASSERT_TRUE(core);
    const DraftOutcome run = run_requests(*core, requests, 2);
    EXPECT_GT(run.stats.drafted_tokens, 30);
    EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
  }
  std::remove(none.c_str());
}

// Each pass runs the stream's last token and its draft: a rejected token costs no second pass over the kept ones.
TEST_P(RecurrentDrafts, NoTokenRunsTwice) {
  const std::vector<Request> requests = {make_request(2, 20, 60, model_->info().vocab)};
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 0);
  const auto answered = std::ssize(plain.truth.at(1));
  ASSERT_GT(answered, 30);
  for (const double wrong : {0.0, 0.2, 0.9}) {
    EngineOptions o = options(2);
    o.drafter = "ngram:k=4";
    auto core = core_with(model_, o, scripted_drafter(plain.truth, 4, wrong));
    ASSERT_TRUE(core);
    int64_t ran = 0, planned = 0, accepted = 0;
    std::vector<TokenEvent> events;
    ASSERT_TRUE(core->add(1, requests[0]).ok());
    while (!core->idle()) {
      const StepPlan plan = core->step(events);
      for (const PlannedChunk& chunk : plan.chunks) {
        ran += chunk.own();
        planned += chunk.drafted;
      }
    }
    accepted = core->stats().accepted_tokens;
    EXPECT_EQ(ran, 20 + answered - 1 - accepted) << "prompt, and every answered token that no draft had";
    EXPECT_EQ(core->stats().drafted_tokens, planned);
    EXPECT_TRUE(wrong > 0 || accepted == planned);
    EXPECT_TRUE(wrong > 0.5 || accepted > answered / 2);
  }
}

// Two streams share six slots for drafted tokens: their drafts together are never longer.
TEST_P(RecurrentDrafts, DraftsAreAsLongAsThereAreSlots) {
  const int64_t vocab = model_->info().vocab;
  const std::vector<Request> requests = {make_request(2, 20, 30, vocab), make_request(4, 7, 30, vocab)};
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 0);
  EngineOptions o = options(2);
  o.max_streams = 2;
  o.drafter = "ngram:k=6";
  o.draft_length = "auto";  // six slots
  auto core = core_with(model_, o, scripted_drafter(plain.truth, 6, 0.1));
  ASSERT_TRUE(core);
  EXPECT_EQ(core->stats().states, 2 + 6);
  const DraftOutcome drafted = run_requests(*core, requests, 0);
  EXPECT_EQ(drafted.emitted, plain.emitted);
  EXPECT_GT(drafted.stats.accepted_tokens, 0);
  EXPECT_EQ(drafted.stats.states_free, drafted.stats.states);
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentDrafts,
                         ::testing::Values("mamba", "falcon_h1", "qwen3next", "mtp_qwen35", "mtp_qwen35moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
