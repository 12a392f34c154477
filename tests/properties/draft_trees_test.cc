// Trees of drafted tokens change the number of steps and nothing else: every event of every stream is the one of plain
// decoding, whatever the tree, the sampling, the constraint, the memory, and the streams beside it.
#include <unistd.h>

#include <filesystem>

#include "properties/draft_runs.h"
#include "speculate/datastore.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

using namespace testing;

// The truth, in places of a tree that are drawn, among wrong tokens; the last ones are probes.
class ScriptedTree final : public TextDrafter {
 public:
  ScriptedTree(const Truth& truth, int64_t probes) : truth_(truth), probes_(probes) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    const auto known = truth_.find(stream.id);
    if (known == truth_.end()) return;
    std::vector<int64_t> depth;  // generated tokens before it; -1: on no path of the truth
    for (int64_t i = 0; i < most; ++i) {
      const auto draw = [&](uint64_t what) {
        return philox_uniform(stream.id + what, static_cast<uint64_t>(stream.size()), static_cast<uint64_t>(i));
      };
      const int64_t parent = draw(1) < 0.4 ? i - 1 : static_cast<int64_t>(draw(2) * static_cast<double>(i + 1)) - 1;
      const int64_t before = parent < 0 ? stream.generated() : depth[static_cast<size_t>(parent)];
      const bool right = before >= 0 && before < std::ssize(known->second) && draw(3) < 0.7;
      const TokenId next = right ? known->second[static_cast<size_t>(before)] : static_cast<TokenId>(draw(4) * 20);
      out.tokens.push_back(next);
      out.parents.push_back(static_cast<int32_t>(parent));
      depth.push_back(right ? before + 1 : -1);
    }
    out.probes = std::min(probes_, out.size());
  }
  void observe(const Sequence&, int64_t committed, std::span<const TokenId> probed) override {
    committed_ += committed;
    probed_ += std::ssize(probed);
  }
  int64_t committed_ = 0, probed_ = 0;

 private:
  const Truth& truth_;
  int64_t probes_;
};

std::unique_ptr<Drafter> tree_of(const Truth& truth, int64_t longest, int64_t probes) {
  return text_drafter({.longest = longest, .trees = true}, std::make_unique<ScriptedTree>(truth, probes));
}

// A datastore of the answers that plain decoding gave, so that the drafter rest is often right.
std::string datastore_of(const LanguageModel& model, const Truth& truth) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / fmt::format("draft_trees.{}.store", getpid());
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  const int64_t vocab = tokenizer ? tokenizer->vocab_size() : model.info().vocab;
  std::vector<TokenId> tokens;
  for (const auto& [stream, answer] : truth) {
    for (const TokenId token : answer) tokens.push_back(static_cast<TokenId>(std::min<int64_t>(token, vocab)));
    tokens.push_back(static_cast<TokenId>(vocab));
  }
  EXPECT_TRUE(write_datastore(path, vocab, tokenizer ? vocabulary_hash(tokenizer->spec().tokens) : 1, tokens).ok());
  return path;
}

class DraftTrees : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(DraftTrees, EventsAreThoseOfPlainDecoding) {
  ASSERT_TRUE(model_);
  int64_t accepted = 0, preempted = 0;
  for (uint64_t round = 1; round <= 2; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      const DraftOutcome plain = run_requests(*core_with(model_, o), requests, 1);
      for (const char* drafter : {"ngram:n=3,min=1,k=3,branches=4", "lookahead:w=3,n=3,g=2",
                                  "token_recycling:k=4,tokens=9", "rest", "scripted", "probes"}) {
        SCOPED_TRACE(fmt::format("round {}, {}, {}", round, name, drafter));
        EngineOptions drafting = o;
        std::string text = drafter;
        if (text == "rest") text = "rest:min=1,k=4,branches=3,file=" + datastore_of(*model_, plain.truth);
        const bool registered = text.find(':') != std::string::npos;
        drafting.drafter = registered ? text : "ngram:k=11,branches=1";
        auto core =
            core_with(model_, drafting, registered ? nullptr : tree_of(plain.truth, 11, *drafter == 'p' ? 4 : 0));
        ASSERT_TRUE(core);
        const DraftOutcome drafted = run_requests(*core, requests, 1);
        EXPECT_EQ(drafted.emitted, plain.emitted);
        accepted += drafted.stats.accepted_tokens;
        preempted += drafted.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(preempted, 10);
}

// A tree of a hundred orders: whatever the place of the right path in it, as many tokens are kept as it has.
TEST_P(DraftTrees, TheRightPathIsKeptWhereverItIs) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  std::vector<Request> requests = {make_request(2, 20, 60, vocab), make_request(3, 7, 60, vocab)};
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 0);
  EngineOptions o = options(2);
  o.drafter = "ngram:k=24";
  auto drafter = tree_of(plain.truth, 24, 0);
  const DraftOutcome drafted = run_requests(*core_with(model_, o, std::move(drafter)), requests, 0);
  EXPECT_EQ(drafted.emitted, plain.emitted);
  EXPECT_LT(drafted.steps, plain.steps * 2 / 3);
}

// Blocks that streams leave in the prefix index hold kept tokens only, at the slots of a chain.
TEST_P(DraftTrees, ThePrefixIndexGetsThePathOnly) {
  ASSERT_TRUE(model_);
  expect_kept_prefixes(model_, "ngram:k=15", [](const Truth& truth) { return tree_of(truth, 15, 2); });
}

INSTANTIATE_TEST_SUITE_P(Models, DraftTrees,
                         ::testing::Values("llama", "gemma3", "qwen3moe", "gpt_oss", "deepseek2", "gemma4_e",
                                           "gemma3n"),
                         [](const auto& one) { return one.param; });

std::string error_of(const char* model, const EngineOptions& o) {
  auto core = EngineCore::create(load_for(golden_model(model), *select_isa()), o);
  return core.ok() ? "" : core.error().message;
}

TEST(DraftTreesLimits, EvictorsAreRefused) {
  const auto no_evictor = [](const char* drafter) {
    return fmt::format(
        "evictor h2o:budget=16 does not go with drafter {}: tokens of a tree that are kept move to other slots; use a "
        "drafter of chains, such as ngram without branches, or none",
        drafter);
  };
  EngineOptions o = options();
  o.drafter = "ngram:branches=2";
  EXPECT_EQ(error_of("llama", o), "");
  o.evictor = "h2o:budget=16";
  EXPECT_EQ(error_of("llama", o), no_evictor("ngram"));
  o.drafter = "ngram";
  EXPECT_EQ(error_of("llama", o), "");
  o.evictor = "";
  o.drafter = "lookahead:w=2,n=3,g=2";
  auto core = make_core(load_for(golden_model("llama"), *select_isa()), o);
  Request request = make_request(1, 5, 5, 100);
  EXPECT_TRUE(core->check(request).ok());
  request.evictor = "h2o:budget=16";
  EXPECT_EQ(core->check(request).error().message, no_evictor("lookahead"));
}

}  // namespace
}  // namespace millrace
