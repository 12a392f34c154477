// Drafters whose lengths the engine chooses: each of them gets to draft, even where a step costs as much more with a
// drafted token as a step for that token alone, so that no draft pays.
#include <unistd.h>

#include <filesystem>

#include "properties/costed_executor.h"
#include "properties/draft_runs.h"
#include "speculate/datastore.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

using namespace testing;

const std::string kAutoHeads = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/draft_heads/";
constexpr TokenId kRepeated = 40;  // the only token of the answer, so that drafters without a model have drafts

// A datastore of that token.
std::string repeated_datastore(const LanguageModel& model) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / fmt::format("auto_drafts.{}.store", getpid());
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  const int64_t vocab = tokenizer ? tokenizer->vocab_size() : model.info().vocab;
  const uint64_t hash = tokenizer ? vocabulary_hash(tokenizer->spec().tokens) : 1;
  EXPECT_TRUE(write_datastore(path, vocab, hash, std::vector<TokenId>(30, kRepeated)).ok());
  return path;
}

// Every drafter, as `--drafter` has it.
std::map<std::string, std::string> every_drafter(const std::string& datastore) {
  const auto trained = [](const std::string& name) { return name + ":model=" + kAutoHeads + name; };
  const std::string target = "model=" + kAutoHeads + "target";
  return {{"ngram", "ngram"},
          {"suffix", "suffix"},
          {"rest", "rest:file=" + datastore},
          {"token_recycling", "token_recycling"},
          {"prediction", "prediction"},
          {"lookahead", "lookahead"},
          {"draft", "draft:" + target},
          {"self", "self"},
          {"layerskip", "layerskip"},
          {"cascade", "cascade:" + target},
          {"staged", "staged:" + target},
          {"medusa", trained("medusa")},
          {"eagle", "eagle:model=" + kAutoHeads + "eagle3"},
          {"mtp", "mtp"},
          {"kangaroo", trained("kangaroo")},
          {"pass", trained("pass")},
          {"longspec", trained("longspec")},
          {"best", "best"}};
}

TEST(AutoDrafts, EveryDrafterIsTriedWhereNonePays) {
  const auto model = load_for(kAutoHeads + "target", *select_isa()),
             with_mtp = load_for(kAutoHeads + "mtp", *select_isa());
  ASSERT_TRUE(model && with_mtp);
  const std::string datastore = repeated_datastore(*model);
  const auto texts = every_drafter(datastore);
  Request request = make_request(0, 12, 40, model->info().vocab);
  request.sampling.logit_bias = {{kRepeated, 1e3}};
  request.prediction.assign(40, kRepeated);
  for (const auto& entry : drafters().entries()) {
    SCOPED_TRACE(entry.info.name);
    const auto text = texts.find(entry.info.name);
    ASSERT_NE(text, texts.end()) << "a drafter that this table lacks";
    EngineOptions o = options();
    o.drafter = text->second;
    o.draft_length = "auto";
    auto executor = CpuExecutor::create(entry.info.name == "mtp" ? with_mtp : model, o);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    auto core = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{}), o);
    ASSERT_TRUE(core.ok()) << core.error().message;
    const DraftOutcome run = run_requests(**core, {request}, 1);
    EXPECT_EQ(run.truth.begin()->second, std::vector<TokenId>(40, kRepeated));
    const DraftDecisions& decisions = run.stats.draft_decisions;
    EXPECT_GT(run.stats.drafted_tokens, 0);
    EXPECT_EQ(decisions.chosen, 0);
    EXPECT_GT(decisions.trials, 0);
    EXPECT_LE(decisions.trials, 8);
    EXPECT_GT(decisions.declined, 10);
    EXPECT_LT(decisions.gain(), 1.05);
  }
  std::filesystem::remove(datastore);
}

}  // namespace
}  // namespace millrace
