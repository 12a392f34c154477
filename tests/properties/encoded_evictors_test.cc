// Token evictors over a KV cache that a codec encodes: the same bits whatever else is in the batch, whatever the
// chunks, the threads, drafts and preemptions; a budget that holds everything changes nothing; and what is refused.
// Streams are long enough that kept tokens fill blocks. attention/codec_tiles_test.cc has what compacting makes of
// them.
#include "properties/evictor_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

class EncodedEvictors : public EvictorRuns {};

TEST_P(EncodedEvictors, ChangeTheAnswer) { change_the_answer(); }

TEST_P(EncodedEvictors, ThreadsAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(EncodedEvictors, BatchMatesDoNotShow) {
  mates_do_not_show({"", "none", "streamingllm:sinks=1,window=37,slack=3"});
}

TEST_P(EncodedEvictors, EachAnswerIsThatOfItsOwnRequest) { each_answer_is_that_of_its_own_request(); }

TEST_P(EncodedEvictors, DraftsDoNotShow) { drafts_do_not_show({"ngram:n=3,min=1,k=5"}); }

TEST_P(EncodedEvictors, PreemptedAtAnyStageTheyContinue) { preempted_at_any_stage_they_continue(); }

TEST_P(EncodedEvictors, ScoringSeesThem) { scoring_sees_them(86); }

TEST_P(EncodedEvictors, AWholeBudgetHasTheBitsOfNone) {
  std::string evictor = GetParam().evictor;
  const size_t at = evictor.find(evictor.starts_with("streamingllm") ? ",window=" : "budget=");
  const size_t value = evictor.find('=', at) + 1;
  evictor.replace(value, evictor.find(',', value) - value, "128");
  EXPECT_TRUE(
      run_one(evicting(options(), evictor), request(1)).same_bits(run_one(evicting(options(), ""), request(1))));
}

// In a tier between its steps, and back.
TEST_P(EncodedEvictors, SwappedStreamsContinue) {
  const Shown alone = run_one(evicting(options()), request(1));
  EngineOptions o = evicting(options(2, 40));
  o.kv_tier = memory_tier(4096);
  auto core = make_core(model_, o);
  for (RequestId id : {1, 2}) ASSERT_TRUE(core->add(id, request(static_cast<int64_t>(id))).ok());
  std::vector<TokenId> tokens;
  std::vector<TokenEvent> events;
  for (int64_t steps = 0; !core->idle(); ++steps) {
    ASSERT_LT(steps, 1000);
    events.clear();
    if (steps % 5 == 4) {
      StepPlan plan;
      plan.preempted = {{1, true}};
      (void)core->replay(plan, events);
    } else {
      core->step(events);
    }
    ASSERT_TRUE(core->check_blocks().ok());
    for (const TokenEvent& event : events)
      if (event.request == 1 && event.token >= 0) tokens.push_back(event.token);
  }
  EXPECT_EQ(tokens, alone.tokens);
  EXPECT_GT(core->stats().swapped_out_tokens, 0);
  EXPECT_GT(core->stats().evicted_tokens, 0);
  EXPECT_EQ(core->stats().states_free, core->stats().states);
  EXPECT_EQ(core->kv().free_blocks() + core->stats().kv_blocks_cached, core->kv().total_blocks());
}

INSTANTIATE_TEST_SUITE_P(
    All, EncodedEvictors,
    ::testing::Values(EvictorCase{"h2o:budget=70,slack=5", "llama3", "kivi:bits=4", 80, 45},
                      EvictorCase{"streamingllm:sinks=4,window=60,slack=6,prompt=evicted", "llama3", "kivi:bits=2", 80,
                                  45},
                      EvictorCase{"snapkv:budget=66,window=8,kernel=5,slack=7,scope=head", "llama3",
                                  "quarot_kv:bits=3,residual=20", 80, 45},
                      EvictorCase{"tova:budget=70,slack=4,scope=layer", "qwen3moe", "kivi:bits=4,residual=20", 80, 45},
                      EvictorCase{"h2o:budget=68,slack=3,scope=head", "llama3", "flexgen_kv", 80, 45},
                      EvictorCase{"random:budget=60,slack=6", "llama3", "turboquant:bits=3", 80, 45},
                      EvictorCase{"key_norm:budget=66,recent=4,slack=5", "llama3", "kivi:bits=2", 80, 45},
                      EvictorCase{"h2o:budget=70,slack=9", "gemma3", "atom_kv", 80, 45}),
    case_name);

TEST(EncodedEvictorChecks, WhatIsRefused) {
  const auto model = load_for(golden_model("llama3"), *select_isa());
  const auto refusal = [&](const char* evictor) -> std::string {
    EngineOptions o = options();
    o.kv_format = "kivi";
    o.evictor = evictor;
    const auto made = EngineCore::create(model, o);
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(refusal("h2o:budget=40"), "");
  EXPECT_EQ(
      refusal("streamingllm:window=20,positions=cache"),
      "evictor streamingllm:window=20,positions=cache does not go with KV format kivi: positions=cache moves keys, "
      "which would be rounded again each time; use positions=text, or f16 or another format of rows");
  EngineOptions before_rope = options();
  before_rope.kv_format = "kvquant";
  before_rope.evictor = "h2o:budget=40";
  const auto made = EngineCore::create(model, before_rope);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.error().message,
      "evictor h2o:budget=40 does not go with KV format kvquant: it rounds keys as they were before RoPE at the "
      "positions of their slots, which tokens that move no longer have; use another codec, such as kivi or quarot_kv");
  EXPECT_EQ(
      refusal("pyramidkv:budget=40"),
      "evictor pyramidkv:budget=40 does not go with KV format kivi: budgets differ by layer, and a stream's newest "
      "tokens, which are not encoded yet, are the same in every layer; use f16 or another format of rows");
}

}  // namespace
}  // namespace millrace
