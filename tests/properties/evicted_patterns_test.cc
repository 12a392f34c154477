// Token evictors beside attention patterns: a pattern counts the tokens that a stream stores, as if it held no others.
// The definition is that of PlainEviction (token_evictors_test.cc); here is what every pair must hold.
#include <gtest/gtest.h>

#include "pattern_texts.h"
#include "properties/evictor_runs.h"

namespace millrace {
namespace {

using namespace testing;

class EvictedPatterns : public EvictorRuns {
 protected:
  EngineOptions without_pattern(EngineOptions o) const {
    o.kernels.clear();
    return o;
  }
};

TEST_P(EvictedPatterns, ChangeTheAnswer) {
  change_the_answer();
  const EngineOptions o = evicting(options());
  EXPECT_FALSE(run_one(o, request(1)).same_bits(run_one(without_pattern(o), request(1))));
}

TEST_P(EvictedPatterns, ThreadsBlocksAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(EvictedPatterns, BatchMatesDoNotShow) {
  mates_do_not_show({"", "none", "streamingllm:sinks=1,window=27,slack=3", "h2o:budget=29,slack=2,scope=head"});
}

TEST_P(EvictedPatterns, DraftsDoNotShow) { drafts_do_not_show({"ngram:n=2,min=1,k=2", "ngram:n=2,min=1,k=9"}); }

TEST_P(EvictedPatterns, PreemptedAtAnyStageTheyContinue) {
  preempted_at_any_stage_they_continue();
  const bool has_tier = !(*make_eviction_rule(GetParam().evictor))->by_layer();
  if (has_tier) preempted_at_any_stage_they_continue(true);
}

TEST_P(EvictedPatterns, ScoringSeesThem) {
  const auto rule = *make_eviction_rule(GetParam().evictor);
  int64_t most = 0;
  for (int64_t layer = 0; layer < layers_; ++layer) most = std::max(most, rule->most_stored(layer, layers_));
  scoring_sees_them(most);
}

INSTANTIATE_TEST_SUITE_P(
    Members, EvictedPatterns,
    ::testing::Values(EvictorCase{.evictor = "streamingllm:sinks=4,window=36,slack=8",
                                  .model = "llama3",
                                  .pattern = "sink_window:block=16,sinks=0,window=2"},
                      EvictorCase{.evictor = "streamingllm:sinks=4,window=36,slack=8,positions=cache,prompt=evicted",
                                  .model = "llama3",
                                  .pattern = "quest:block=16,top=1,sinks=0,window=1,first=0"},
                      EvictorCase{.evictor = "h2o:budget=40,slack=8,prompt=evicted",
                                  .model = "llama3",
                                  .pattern = "bigbird:block=16,window=1,global=0,random=1"},
                      EvictorCase{.evictor = "h2o:budget=44,slack=5,scope=head",
                                  .model = "llama3",
                                  .pattern = "minference:block=16,top=1,sinks=0,window=1"},
                      EvictorCase{.evictor = "snapkv:budget=40,window=8,slack=6,scope=layer",
                                  .model = "llama3",
                                  .pattern = "diffuser:block=16,window=1,global=1,random=0,alpha=0.5,hops=2"},
                      EvictorCase{.evictor = "h2o:budget=40,slack=6,scope=head,prompt=evicted",
                                  .model = "llama3",
                                  .pattern = "diffuser:block=16,window=1,global=0,random=1,alpha=0.5,hops=3"},
                      EvictorCase{.evictor = "key_norm:budget=40,recent=6,slack=6",
                                  .model = "llama3",
                                  .pattern = "quest:block=16,top=1,sinks=0,window=1,first=0"},
                      EvictorCase{.evictor = "tova:budget=40,slack=6",
                                  .model = "llama3",
                                  .pattern = "sinkhorn:block=16,top=1,sinks=0,window=1"},
                      EvictorCase{.evictor = "scissorhands:budget=40,recent=6,history=12,slack=8",
                                  .model = "gemma3",
                                  .pattern = "quest:block=16,top=1,sinks=0,window=1,first=0"},
                      EvictorCase{.evictor = "pyramidkv:budget=40,window=8,kernel=5,beta=4,slack=8",
                                  .model = "llama3",
                                  .pattern = "longformer:block=16,window=1,global=1"},
                      EvictorCase{.evictor = "spatten:keep=50,final=30,recent=6,slack=5,heads=0.5,prompt=evicted",
                                  .model = "llama3",
                                  .pattern = "sink_window:block=16,sinks=0,window=2"}),
    case_name);

// Over a KV cache that a codec encodes, whose blocks the pattern chooses and the evictor compacts.
INSTANTIATE_TEST_SUITE_P(
    Encoded, EvictedPatterns,
    ::testing::Values(
        EvictorCase{"h2o:budget=70,slack=5", "llama3", "kivi:bits=4", 80, 45, "sink_window:block=32,sinks=0,window=1"},
        EvictorCase{"streamingllm:sinks=4,window=60,slack=6,prompt=evicted", "llama3", "kivi:bits=2", 80, 45,
                    "quest:block=32,top=1,sinks=0,window=1,first=0"},
        EvictorCase{"snapkv:budget=66,window=8,kernel=5,slack=7,scope=head", "llama3", "quarot_kv:bits=3,residual=32",
                    80, 45, "bigbird:block=32,window=1,global=0,random=1"},
        EvictorCase{"tova:budget=70,slack=4,scope=layer", "qwen3moe", "kivi:bits=4,residual=32", 80, 45,
                    "minference:block=32,top=1,sinks=0,window=1"},
        EvictorCase{"random:budget=60,slack=6", "llama3", "turboquant:bits=3", 80, 45,
                    "sinkhorn:block=32,top=1,sinks=0,window=1"},
        EvictorCase{"h2o:budget=70,slack=9", "gemma3", "atom_kv", 80, 45,
                    "quest:block=32,top=1,sinks=0,window=1,first=0"}),
    case_name);

// The two ends: whoever sees all blocks, and whoever has room for all tokens.
class PatternsAndEvictors : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
  }
  Shown run(const std::string& pattern, const std::string& evictor, int64_t prompt,
            const std::string& kv_format = "f32") const {
    EngineOptions o = options(2, 100);
    o.kv_format = kv_format;
    o.context = 640;
    if (!pattern.empty()) o.kernels = {"attention=" + pattern};
    o.evictor = evictor;
    auto core = make_core(model_, o);
    if (!core) return {};
    const int64_t vocab = model_->info().vocab;
    EXPECT_TRUE(core->add(1, make_request(1, prompt, 40, vocab)).ok());
    return run_all(*core, vocab)[1];
  }
  std::shared_ptr<const LanguageModel> model_;
};

TEST_F(PatternsAndEvictors, AllBlocksAreNoPattern) {
  for (const char* evictor : {"h2o:budget=70,slack=9,scope=head,prompt=evicted", "scissorhands:budget=70,slack=9",
                              "streamingllm:sinks=4,window=60,slack=9,positions=cache"}) {
    const Shown plain = run("", evictor, 150);
    ASSERT_EQ(plain.tokens.size(), 40u);
    for (const PatternTexts& texts : pattern_texts())
      EXPECT_TRUE(run(texts.all, evictor, 150).same_bits(plain)) << evictor << ", " << texts.all;
  }
}

TEST_F(PatternsAndEvictors, AFullBudgetIsNoEvictor) {
  for (const PatternTexts& texts : pattern_texts()) {
    if (texts.some.empty()) continue;
    const Shown plain = run(texts.some, "", 280);
    ASSERT_EQ(plain.tokens.size(), 40u);
    for (const char* evictor : {"h2o:budget=320,slack=1,scope=head,prompt=evicted", "window:budget=320,slack=3"})
      EXPECT_TRUE(run(texts.some, evictor, 280).same_bits(plain)) << evictor << ", " << texts.some;
  }
}

// Each of the two alone, over encoded keys and values.
TEST_F(PatternsAndEvictors, EncodedAllBlocksAreNoPatternAndAFullBudgetIsNoEvictor) {
  const std::string evictor = "h2o:budget=100,slack=9,scope=head,prompt=evicted",
                    some = "quest:block=32,top=1,sinks=0,window=1,first=0";
  for (const char* format : {"kivi:bits=4", "quarot_kv:bits=4,residual=32"}) {
    const Shown evicted = run("", evictor, 150, format), chosen = run(some, "", 280, format);
    ASSERT_EQ(evicted.tokens.size(), 40u);
    ASSERT_EQ(chosen.tokens.size(), 40u);
    EXPECT_FALSE(chosen.same_bits(run("", "", 280, format)));
    for (const char* all : {"sink_window:block=32,sinks=1,window=100", "quest:block=32,top=100,first=0",
                            "minference:block=32,top=100,sinks=1,window=1"})
      EXPECT_TRUE(run(all, evictor, 150, format).same_bits(evicted)) << format << ", " << all;
    EXPECT_TRUE(run(some, "h2o:budget=320,slack=1,scope=head,prompt=evicted", 280, format).same_bits(chosen)) << format;
  }
}

TEST_F(PatternsAndEvictors, RefusalsNameTheReason) {
  EngineOptions o = options();
  o.kernels = {"attention=quest:block=16"};
  o.evictor = "pyramidkv";
  const auto made = EngineCore::create(model_, o);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.error().message,
      "evictor pyramidkv does not go with attention quest:block=16: budgets differ by layer, and a pattern that stores "
      "rows next to the keys needs one table; use a static pattern, or an evictor with one budget");
  auto gates = load_for(golden_model("gates"), *select_isa());
  ASSERT_TRUE(gates);
  o.kernels = {"attention=sink_window"};
  o.evictor = "adaptively_sparse";
  const auto gated = EngineCore::create(gates, o);
  ASSERT_FALSE(gated.ok());
  EXPECT_EQ(
      gated.error().message,
      "evictor adaptively_sparse does not go with attention sink_window: gates hide single keys, and a pattern sees "
      "whole blocks of keys; omit one of the two");
}

}  // namespace
}  // namespace millrace
