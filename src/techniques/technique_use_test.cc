// The syntax FAMILY=NAME[:key=value,...]: exact errors, every member of every family, and what the choices set.
#include "techniques/technique_use.h"

#include <gtest/gtest.h>

#include <fstream>

#include "techniques/families.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::string refusal(std::string_view text, std::string_view place = "run") {
  const auto use = parse_use(text, place);
  return use.ok() ? "" : use.error().message;
}

std::vector<TechniqueUse> uses_of(const std::vector<std::string>& texts, std::string_view place = "run") {
  auto uses = parse_uses(texts, place);
  EXPECT_TRUE(uses.ok()) << uses.error().message;
  return uses.ok() ? *uses : std::vector<TechniqueUse>();
}

TEST(TechniqueUse, ErrorsAreExact) {
  EXPECT_EQ(refusal("policy"), "policy: expected FAMILY=NAME[:key=value,...]");
  EXPECT_EQ(refusal("policy="), "policy=: expected FAMILY=NAME[:key=value,...]");
  EXPECT_EQ(
      refusal("polcy=vtc"),
      "polcy=vtc: no such family as 'polcy'; families: router, weights, sampler, kv_format, kernel, attention, exit, "
      "policy, predictor, "
      "prefix_evictor, state_evictor, evictor, drafter, acceptance, tier, store, prompt, program, context");
  EXPECT_EQ(refusal("prefix_evictor=fifo"),
            "prefix_evictor=fifo: no such prefix_evictor as 'fifo'; there are lru, lfu, length_aware, importance");
  EXPECT_EQ(refusal("policy=priority:preemt=true"),
            "policy=priority:preemt=true: preemt: no such option; known: preempt, reserve");
  EXPECT_EQ(refusal("policy=priority:preempt=true,preempt=false"),
            "policy=priority:preempt=true,preempt=false: preempt: is given twice");
  EXPECT_EQ(refusal("policy=stall_free:tbt_ms=0"),
            "policy=stall_free:tbt_ms=0: tbt_ms: must be between 0.01 and 1000000, got 0");
  EXPECT_EQ(refusal("sampler=min_p:min_p=2"), "sampler=min_p:min_p=2: min_p: must be between 0 and 1, got 2");
  EXPECT_EQ(refusal("policy=vtc", "perplexity"),
            "policy=vtc: policy does not apply to perplexity; it applies to run, chat, batch, program, serve, replay, "
            "simulate");
  EXPECT_EQ(refusal("kv_format=f16", kInRequest),
            "kv_format=f16: kv_format does not apply to a request; it applies to run, chat, perplexity, bench, batch, "
            "program, compare, serve, replay, simulate");
  EXPECT_EQ(refusal("arch=llama"), "arch=llama: arch is not chosen here: the model's files determine it");
  EXPECT_EQ(refusal("sampler=dry"),
            "sampler=dry: needs at least one of its options: dry_multiplier, dry_base, dry_allowed_length, dry_window, "
            "dry_breakers");
  EXPECT_EQ(refusal("sampler=constraint"),
            "sampler=constraint: has no options to set; fields of the request turn it on");
}

TEST(TechniqueUse, AFamilyIsChosenOnceAndASamplerToo) {
  const auto refused = [](std::vector<std::string> texts) {
    const auto uses = parse_uses(texts, "run");
    return uses.ok() ? "" : uses.error().message;
  };
  EXPECT_EQ(refused({"policy=vtc", "policy=fcfs"}), "policy=fcfs: policy is chosen already, by policy=vtc");
  EXPECT_EQ(refused({"sampler=top_k:top_k=3", "sampler=top_k:top_k=4"}),
            "sampler=top_k:top_k=4: top_k is chosen already, by sampler=top_k:top_k=3");
  EXPECT_EQ(refused({"sampler=top_k:top_k=3", "sampler=greedy"}), "");
}

TEST(TechniqueUse, KvCodecsTakeOptions) {
  EngineOptions options;
  const auto applied = apply_uses(uses_of({"kv_format=kivi:bits=4"}), options);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(options.kv_format, "kivi:bits=4");
  EXPECT_EQ(applied->at(0).options["group"], 32);
  EXPECT_EQ(applied->at(0).effect, "KV cache in kivi:bits=4, 5 bits a value instead of 16 (f16)");
  const auto wrong = apply_uses(uses_of({"kv_format=kivi:bits=3"}), options);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "kv_format=kivi:bits=3: KV format kivi: bits: must be 2 or 4, got 3");
  EXPECT_EQ(options.kv_format, "kivi:bits=4");
}

TEST(TechniqueUse, EngineFamiliesSetTheEnginesOptions) {
  EngineOptions options;
  const auto uses = uses_of({"predictor=constant:tokens=9", "policy=shortest_predicted:bucket=32", "kv_format=q8_0",
                             "prefix_evictor=lfu", "sampler=greedy"});
  const auto applied = apply_uses(uses, options);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(options.policy, "shortest_predicted:bucket=32,predictor=constant:tokens=9");
  EXPECT_EQ(options.kv_format, "q8_0");
  EXPECT_EQ(options.prefix_evict, "lfu");
  ASSERT_EQ(applied->size(), 4u);  // the sampler is not the engine's
  EXPECT_EQ(applied->at(0).effect, "KV cache in q8_0, 8.5 bits a value instead of 16 (f16)");
  EXPECT_EQ(applied->at(1).options["bucket"], 32);
  EXPECT_EQ(applied->at(1).effect, "policy shortest_predicted:bucket=32 instead of fcfs");
  EXPECT_EQ(applied->at(3).effect, "prefix cache evicts by lfu instead of lru");
}

TEST(TechniqueUse, APredictorNeedsAPolicyThatPredicts) {
  EngineOptions options;
  EXPECT_EQ(apply_uses(uses_of({"predictor=history"}), options).error().message,
            "predictor=history: policy fcfs predicts nothing; use policy=shortest_predicted with it");
  EXPECT_EQ(
      apply_uses(uses_of({"policy=shortest_predicted:predictor=oracle", "predictor=history"}), options).error().message,
      "predictor=history: shortest_predicted:predictor=oracle has a predictor already");
}

TEST(TechniqueUse, AnAcceptanceNeedsADrafter) {
  EngineOptions options;
  EXPECT_EQ(apply_uses(uses_of({"acceptance=exact"}), options).error().message,
            "acceptance=exact: no drafter is chosen; use drafter=NAME with it");
  const auto applied = apply_uses(uses_of({"acceptance=exact", "drafter=ngram:k=6"}), options);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(options.drafter, "ngram:k=6");
  EXPECT_EQ(options.acceptance, "exact");
  EXPECT_EQ(applied->at(0).effect, "steps verify tokens drafted by ngram:k=6");
}

TEST(TechniqueUse, ARouterIsAnOptionOfLoading) {
  LoadOptions load;
  EngineOptions engine;
  const auto uses = uses_of({"router=switch", "policy=vtc"});
  const auto applied = apply_uses(uses, load);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(load.router, "switch");
  ASSERT_EQ(applied->size(), 1u);
  EXPECT_EQ(applied->front().effect, "experts are chosen by switch");
  EXPECT_EQ(apply_uses(uses, engine)->size(), 1u);
}

TEST(TechniqueUse, SamplersSetOnlyWhatIsGiven) {
  SamplingOptions options;
  const auto uses = uses_of({"sampler=penalties:presence_penalty=0.5", "sampler=banned_tokens:banned_tokens=1,2,3",
                             "sampler=logit_bias:logit_bias=5:-1.5,7:2", "policy=vtc"});
  const auto applied = apply_uses(uses, options);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  SamplingOptions expected;
  expected.presence_penalty = 0.5;
  expected.banned_tokens = {1, 2, 3};
  expected.logit_bias = {{5, -1.5}, {7, 2}};
  EXPECT_EQ(options.presence_penalty, expected.presence_penalty);
  EXPECT_EQ(options.repetition_penalty, expected.repetition_penalty);
  EXPECT_EQ(options.penalty_window, expected.penalty_window);
  EXPECT_EQ(options.banned_tokens, expected.banned_tokens);
  EXPECT_EQ(options.logit_bias, expected.logit_bias);
  ASSERT_EQ(applied->size(), 3u);
  EXPECT_EQ(applied->at(0).effect, "presence_penalty 0.5 instead of 0");
  EXPECT_EQ(applied->at(0).options["repetition_penalty"], 1);
}

TEST(TechniqueUse, GreedyIsTemperatureZero) {
  SamplingOptions options;
  ASSERT_TRUE(apply_uses(uses_of({"sampler=greedy"}), options).ok());
  EXPECT_EQ(options.temperature, 0);
}

TEST(TechniqueUse, NumbersAreComparedAsNumbers) {
  const auto same = [](const std::string& a, const std::string& b) {
    return same_choice(uses_of({a}).front(), uses_of({b}).front());
  };
  EXPECT_TRUE(same("policy=stall_free:tbt_ms=100", "policy=stall_free"));
  EXPECT_TRUE(same("policy=stall_free:tbt_ms=50,chunk=8", "policy=stall_free:chunk=8,tbt_ms=5e1"));
  EXPECT_FALSE(same("policy=stall_free:tbt_ms=50", "policy=stall_free:tbt_ms=51"));
  EXPECT_FALSE(same("policy=vtc", "policy=fcfs"));
}

// Every member of a family that applies to `run` can be chosen with its defaults written out, and comes back in the
// answer with these values.
TEST(TechniqueUse, EveryMemberWithEveryOption) {
  int64_t chosen = 0;
  const std::string families = ", " + families_in("run") + ", ";
  for (const TechniqueInfo& info : all_techniques()) {
    if (families.find(", " + info.family + ", ") == std::string::npos || info.family == "predictor" ||
        info.family == "acceptance" || info.family == "prompt")
      continue;  // need a policy that predicts, a drafter; a pipeline
    if (info.family == "sampler" && info.options.empty()) continue;
    if (info.family == "attention" && info.options.empty()) continue;  // of the model's layers
    std::string text = info.family + "=" + info.name;
    for (const OptionSpec& spec : info.options)
      text += (&spec == info.options.data() ? ":" : ",") + spec.name + "=" + spec.default_value;
    EngineOptions engine;
    SamplingOptions sampling;
    const auto uses = uses_of({text});
    ASSERT_EQ(uses.size(), 1u) << text;
    auto applied = apply_uses(uses, engine);
    if (info.family == "sampler") applied = apply_uses(uses, sampling);
    LoadOptions load;
    if (info.family == "router" || info.family == "weights") applied = apply_uses(uses, load);
    ASSERT_TRUE(applied.ok()) << text << ": " << applied.error().message;
    ASSERT_EQ(applied->size(), 1u) << text;
    EXPECT_EQ(applied->front().options.size(), info.options.size()) << text;
    EXPECT_FALSE(applied->front().effect.empty()) << text;
    ++chosen;
  }
  EXPECT_GT(chosen, 25);
}

TEST(TechniqueUse, PromptsAreForThePipeline) {
  const auto uses = uses_of({"kv_format=f32", "prompt=selective_context:ratio=0.25,unit=sentence"});
  EXPECT_EQ(prompt_passes_of(uses), std::vector<std::string>{"selective_context:ratio=0.25,unit=sentence"});
  EngineOptions engine;
  EXPECT_EQ(apply_uses(uses, engine)->size(), 1u);
  EXPECT_EQ(refusal("prompt=selective_context:unit=line"),
            "prompt=selective_context:unit=line: prompt selective_context: unit: expected token, word or sentence, got "
            "'line'");
}

TEST(TechniqueUse, AProgramIsForItsCommandAndForComparisons) {
  for (const std::string place : {"program", "compare"}) {
    const auto uses = parse_uses(std::vector<std::string>{"program=skeleton:points=4", "kv_format=f32"}, place);
    ASSERT_TRUE(uses.ok()) << uses.error().message;
    EXPECT_EQ(program_of(*uses), "skeleton:points=4");
    EngineOptions engine;
    EXPECT_EQ(apply_uses(*uses, engine)->size(), 1u);  // the engine does not know of programs
  }
  EXPECT_EQ(program_of(*parse_uses(std::vector<std::string>{"program=none"}, "compare")), "");
  EXPECT_EQ(refusal("program=skeleton"),
            "program=skeleton: program does not apply to run; it applies to program, compare");
  EXPECT_EQ(refusal("program=tree", "program"),
            "program=tree: no such program as 'tree'; there are best_of, self_consistency, skeleton, skeleton_router, "
            "model_cascade");
}

TEST(TechniqueUse, NoneLeavesOutAFamilyThatCanBeMissing) {
  EngineOptions engine;
  engine.evictor = "h2o:budget=64";
  engine.document_context = "kvlink";
  engine.drafter = "ngram";
  const auto uses = uses_of({"evictor=none", "context=none", "drafter=none", "prompt=none"});
  EXPECT_EQ(apply_uses(uses, engine)->size(), 3u);
  EXPECT_EQ(engine.evictor, "none");
  EXPECT_EQ(engine.document_context, "none");
  EXPECT_EQ(engine.drafter, "");
  EXPECT_TRUE(prompt_passes_of(uses).empty());
  EXPECT_EQ(refusal("evictor=none:budget=4"), "evictor=none:budget=4: none has no options");
}

TEST(Techniques, EveryFieldIsFilled) {
  for (const TechniqueInfo& info : all_techniques()) {
    const std::string name = info.family + "=" + info.name;
    EXPECT_FALSE(info.summary.empty()) << name;
    EXPECT_NE(info.loss, Loss::not_applicable) << name;
    EXPECT_TRUE(std::ifstream(std::string(MILLRACE_SOURCE_DIR) + "/" + info.test).good()) << name << ": " << info.test;
    if (info.paper.empty()) continue;
    EXPECT_FALSE(info.paper.authors.empty()) << name << ": " << info.paper.text;
    EXPECT_FALSE(info.paper.title.empty()) << name << ": " << info.paper.text;
    EXPECT_TRUE(info.paper.year > 1900 && info.paper.year < 2100) << name << ": " << info.paper.text;
  }
}

TEST(Papers, ArePrintedAsTheyAreRead) {
  const Paper two("Liu and Layland, 1973, Scheduling, in a Hard-Real-Time Environment; Basu et al., 2021, Mirostat");
  EXPECT_EQ(two.authors, "Liu and Layland");
  EXPECT_EQ(two.year, 1973);
  EXPECT_EQ(two.title, "Scheduling, in a Hard-Real-Time Environment");
  EXPECT_EQ(two.text,
            "Liu and Layland, 1973, Scheduling, in a Hard-Real-Time Environment; Basu et al., 2021, Mirostat");
  EXPECT_EQ(Paper("no year, no title").year, 0);
  EXPECT_TRUE(Paper("").empty());
}

}  // namespace
}  // namespace millrace
