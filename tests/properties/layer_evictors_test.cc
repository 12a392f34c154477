// Token evictors with budgets by layer, or by KV head, in the engine: the same bits whatever else is in the batch,
// equal to a plain reference with tables of single tokens, and memory that follows what each layer stores.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "properties/plain_layers.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

class LayerEvictors : public EvictorRuns {};

TEST_P(LayerEvictors, ChangeTheAnswer) { change_the_answer(); }

TEST_P(LayerEvictors, ThreadsBlocksAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(LayerEvictors, BatchMatesDoNotShow) {
  mates_do_not_show({"", "none", "streamingllm:sinks=1,window=7,slack=3", "h2o:budget=9,slack=2,scope=head",
                     "snapkv:budget=9,window=4,slack=2,scope=layer"});
  if (tables_ == layers_) mates_do_not_show({"spatten:keep=12,final=5,slack=2"});
}

// Streams of an engine whose layers, or heads, have blocks of their own, with evictors that need none, or without.
TEST_P(LayerEvictors, BlocksByLayerDoNotShow) {
  for (const char* other : {"none", "h2o:budget=20,slack=5", "tova:budget=20,slack=5,scope=layer",
                            "snapkv:budget=20,window=6,slack=5,scope=head,prompt=evicted"}) {
    Request r = request(3);
    const Shown apart = run_one(evicting(options(), other), r);
    r.evictor = other;
    EXPECT_TRUE(run_one(evicting(options(2, 33, 4)), r).same_bits(apart)) << other;
  }
}

TEST_P(LayerEvictors, EachAnswerIsThatOfItsOwnRequest) { each_answer_is_that_of_its_own_request(); }

TEST_P(LayerEvictors, DraftsDoNotShow) {
  drafts_do_not_show({"ngram:n=2,min=1,k=2", "ngram:n=2,min=1,k=9"});
  if (GetParam().model == std::string_view("llama3")) drafts_do_not_show({"self:k=3,mlp=1,p=0"});
}

// Blocks of one token: what a stream holds is what its layers store.
TEST_P(LayerEvictors, NoLayerStoresMoreThanItsBudgetAndTheSlack) {
  const auto rule = *make_eviction_rule(GetParam().evictor);
  auto core = make_core(model_, evicting(options(1, 16, 1)));
  ASSERT_TRUE(core->add(1, request(1)).ok());
  int64_t after_prompt = 0, most = 0, least = INT64_MAX, decisions = 0;
  for (int64_t layer = 0; layer < tables_; ++layer) after_prompt += rule->most_stored(layer, tables_);
  std::vector<TokenEvent> events;
  while (!core->idle()) {
    core->step(events);
    ASSERT_TRUE(core->check_blocks().ok());
    const int64_t held = core->kv().total_blocks() - core->kv().free_blocks();
    const EngineSnapshot snapshot = core->snapshot();
    if (snapshot.streams.empty()) break;
    EXPECT_EQ(snapshot.streams[0].blocks, held);
    const int64_t computed = snapshot.streams[0].computed_tokens;
    EXPECT_LE(held, rule->whole_prompt && computed <= 50 ? std::max(after_prompt, 50 * tables_) : after_prompt);
    EXPECT_LE(held, computed * tables_);
    if (computed <= 50) continue;
    decisions += held < most;
    most = std::max(most, held);
    least = std::min(least, held);
  }
  EXPECT_GT(decisions, 0);
  EXPECT_LT(least, most);
  for (const TokenEvent& event : events)
    if (event.finish != FinishReason::none) {
      EXPECT_EQ(event.timings.kept_tokens + event.timings.evicted_tokens, 109);
      EXPECT_LE(event.timings.kept_tokens, (after_prompt + tables_ - 1) / tables_);
    }
}

// A pool for what the layers store, no more: two streams one after the other, and a plain stream is refused.
TEST_P(LayerEvictors, AStreamFitsInTheSumOfItsLayers) {
  const std::string evictor = evicting_prompts();
  const auto rule = *make_eviction_rule(evictor);
  EngineOptions o = evicting(options(1, 16, 4), evictor);
  o.kv_tokens = 0;
  o.max_streams = 1;
  auto core = make_core(model_, o);
  const int64_t blocks = blocks_demand(rule.get(), 128, 128, tables_, 4);
  EXPECT_GE(core->kv().total_blocks(), blocks);
  EXPECT_LT(core->kv().total_blocks(), blocks + tables_);
  EngineOptions uniform = o;  // which gives every layer what the one with most needs
  uniform.evictor = fmt::format("h2o:budget={},slack={},prompt=evicted",
                                most_demand(rule.get(), 128, 128, tables_) - rule->slack, rule->slack);
  EXPECT_LT(core->kv().bytes(), make_core(model_, uniform)->kv().bytes());
  ASSERT_TRUE(core->add(1, request(1)).ok());
  ASSERT_TRUE(core->add(2, request(1)).ok());
  const auto shown = run_all(*core, vocab_);
  EXPECT_EQ(shown.at(1).tokens.size(), 60u);
  EXPECT_TRUE(shown.at(2).same_bits(shown.at(1)));
  EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
  EXPECT_EQ(core->stats().preemptions, 0);
  Request plain = request(1);
  plain.evictor = "none";
  const auto refused = core->check(plain);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(fmt::format("KV cache: 110 tokens in each of {} {}s", tables_,
                                                     tables_ > layers_ ? "KV head" : "layer")),
            std::string::npos)
      << refused.error().message;
}

// Streams of every kind in little memory: preempted, computed again, and with the bits of each one alone.
TEST_P(LayerEvictors, PreemptionsDoNotShow) {
  std::map<RequestId, Request> requests;
  std::map<RequestId, Shown> alone;
  for (int64_t i = 1; i <= 7; ++i) {
    Request r = request(20 + i, 4 + 9 * i, 50);
    if (i % 4 == 2) r.evictor = "none";
    if (i % 4 == 3) r.evictor = "h2o:budget=15,slack=4";
    r.priority = i;
    const auto id = static_cast<RequestId>(i);
    alone[id] = run_one(evicting(options()), r);
    requests[id] = std::move(r);
  }
  for (const char* policy : {"fcfs:reserve=prompt", "priority", "skip_join_mlfq:quantum_ms=1"}) {
    SCOPED_TRACE(policy);
    EngineOptions o = evicting(options(2, 40, 4));
    o.kv_tokens = 124;
    o.policy = policy;
    auto core = make_core(model_, o);
    for (const auto& [id, r] : requests) ASSERT_TRUE(core->add(id, r).ok());
    const auto shown = run_all(*core, vocab_);
    for (const auto& [id, r] : requests) EXPECT_TRUE(shown.at(id).same_bits(alone.at(id))) << id;
    if (policy == std::string_view("fcfs:reserve=prompt")) {
      EXPECT_GT(core->stats().preemptions, 0);
      EXPECT_GT(core->stats().recomputed_tokens, 0);
    }
    EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
  }
}

TEST_P(LayerEvictors, PreemptedAtAnyStageTheyContinue) { preempted_at_any_stage_they_continue(); }

TEST_P(LayerEvictors, EqualAPlainReference) {
  const auto rule = make_eviction_rule(GetParam().evictor);
  ASSERT_TRUE(rule.ok());
  const bool cascade = (*rule)->evictor->cascades(), uses = (*rule)->evictor->mass_rule().shares,
             norms = (*rule)->evictor->judges_keys();
  for (const int64_t seed : {1, 2, 3}) {
    const Request r = request(seed);
    const Shown shown = run_one(evicting(options(2, 32)), r);
    PlainLayers plain(*model_, **rule, std::ssize(r.prompt),
                      cascade || norms ? 1 << 20
                      : uses           ? 12
                                       : 8,
                      cascade || uses || norms ? 6 : 8, uses || norms ? 0 : 2);
    std::vector<float> logits;
    for (const TokenId token : r.prompt) logits = plain.step(token);
    for (size_t i = 0; i < shown.tokens.size(); ++i) {
      ASSERT_TRUE(same_logits(logits, shown.logits[i])) << seed << ", " << i;
      logits = plain.step(shown.tokens[i]);
    }
    const auto& positions = plain.positions();
    EXPECT_NE(positions.front().size(), positions.back().size());
    for (size_t layer = 1; layer < positions.size() && cascade; ++layer)
      for (const int64_t position : positions[layer])
        EXPECT_NE(std::ranges::find(positions[layer - 1], position), positions[layer - 1].end());
  }
}

TEST_P(LayerEvictors, ScoringSeesThem) {
  const bool keeps_layers = std::string_view(GetParam().evictor).find("skip=") != std::string_view::npos;
  scoring_sees_them(keeps_layers ? 66 : 32);  // 100 tokens in one of two layers
}

INSTANTIATE_TEST_SUITE_P(
    Members, LayerEvictors,
    ::testing::Values(EvictorCase{"pyramidkv:budget=20,window=8,kernel=5,beta=4,slack=8"},
                      EvictorCase{"pyramidkv:budget=20,window=8,kernel=5,beta=3,slack=5,prompt=evicted", "qwen3"},
                      EvictorCase{"pyramidkv:budget=20,window=8,kernel=5,beta=4,slack=8", "deepseek2"},
                      EvictorCase{"scissorhands:budget=20,recent=6,history=12,slack=8,layers=2.5"},
                      EvictorCase{"scissorhands:budget=20,recent=6,history=12,slack=5,layers=9.4,prompt=evicted",
                                  "qwen3"},
                      EvictorCase{"scissorhands:budget=20,recent=6,history=12,slack=8,layers=3.5.2", "deepseek2"},
                      EvictorCase{"scissorhands:budget=20,recent=6,history=12,slack=8,heads=1.5.9.2"},
                      EvictorCase{"snapkv:budget=20,window=8,kernel=5,slack=5,heads=9.1.3.4,prompt=evicted"},
                      EvictorCase{"scissorhands:budget=20,recent=6,history=12,slack=8,heads=3.5.2", "deepseek2"},
                      EvictorCase{"key_norm:budget=20,recent=6,slack=8,skip=1"},
                      EvictorCase{"key_norm:budget=20,recent=6,prompt=evicted,slack=5,skip=1", "qwen3"},
                      EvictorCase{"key_norm:budget=20,recent=6,slack=8,layers=3.5.2", "deepseek2"},
                      EvictorCase{"key_norm:budget=20,recent=6,slack=8,heads=1.5.9.2"},
                      EvictorCase{"spatten:keep=30,final=12,recent=6,slack=8"},
                      EvictorCase{"spatten:keep=30,final=12,recent=6,slack=5,prompt=evicted"},
                      EvictorCase{"spatten:keep=30,final=12,recent=6,slack=6,prompt=evicted", "deepseek2"}),
    case_name);

class LayerEvictorBits : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
  }
  Shown run(const std::string& evictor, const Request& r, int64_t* evicted = nullptr) const {
    EngineOptions o = options();
    o.evictor = evictor;
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, r).ok());
    Shown shown = run_all(*core, model_->info().vocab)[1];
    if (evicted) *evicted = core->stats().evicted_tokens;
    return shown;
  }

  std::shared_ptr<const LanguageModel> model_;
};

// With room for all tokens nothing is dropped, and the answer is the plain one.
TEST_F(LayerEvictorBits, OfTheWholeLengthArePlain) {
  const Request r = make_request(1, 50, 60, model_->info().vocab);
  const Shown plain = run("", r);
  for (const char* evictor :
       {"pyramidkv:budget=300,beta=3", "spatten:keep=200,final=110,prompt=evicted,slack=1",
        "scissorhands:budget=300,layers=2.3,prompt=evicted", "scissorhands:budget=300,heads=2.3.1.1",
        "h2o:budget=400,heads=1.2.2.2,prompt=evicted", "key_norm:budget=110,skip=1,prompt=evicted"}) {
    int64_t evicted = 1;
    EXPECT_TRUE(run(evictor, r, &evicted).same_bits(plain)) << evictor;
    EXPECT_EQ(evicted, 0) << evictor;
  }
}

// With equal budgets evictors with shares are themselves with the scope of those that have them.
TEST_F(LayerEvictorBits, EqualSharesAreAScope) {
  const std::pair<const char*, const char*> scopes[] = {{",layers=7.7", ",scope=layer"},
                                                        {",heads=3.3.3.3", ",scope=head"}};
  for (const char* own : {"scissorhands:budget=24,recent=5,history=12", "snapkv:budget=24,window=8,kernel=5",
                          "h2o:budget=24", "h2o:budget=24,recent=0", "key_norm:budget=24"})
    for (const auto& [shares, scope] : scopes)
      for (const char* rest : {",slack=6", ",slack=1,prompt=evicted"}) {
        const Request r = make_request(3, 50, 60, model_->info().vocab);
        const Shown shared = run(own + std::string(shares) + rest, r);
        EXPECT_TRUE(shared.same_bits(run(own + std::string(scope) + rest, r))) << own << shares << rest;
        EXPECT_FALSE(shared.same_bits(run(own + std::string(",scope=stream") + rest, r))) << own << rest;
      }
}

// With equal budgets PyramidKV is SnapKV in which each layer chooses, Scissorhands is itself with that scope, and a
// cascade of equal budgets drops the same tokens in every layer.
TEST_F(LayerEvictorBits, EqualBudgetsAreThoseOfOneTable) {
  for (const char* prompt : {"whole", "evicted"})
    for (const int64_t seed : {1, 2}) {
      const Request r = make_request(seed, 50, 60, model_->info().vocab);
      const std::string rest = fmt::format(",slack=6,prompt={}", prompt);
      EXPECT_TRUE(run("pyramidkv:budget=24,window=8,kernel=5,beta=1" + rest, r)
                      .same_bits(run("snapkv:budget=24,window=8,kernel=5,scope=layer" + rest, r)));
      const std::string own = "scissorhands:budget=24,recent=5,history=12";
      EXPECT_TRUE(run(own + ",layers=7.7" + rest, r).same_bits(run(own + ",scope=layer" + rest, r)));
      EXPECT_TRUE(run("spatten:keep=24,final=24,recent=12" + rest, r)
                      .same_bits(run("h2o:budget=24,worth=sum,scope=stream" + rest, r)));
    }
}

TEST_F(LayerEvictorBits, RefusalsNameTheReason) {
  const auto refusal = [&](const std::shared_ptr<const LanguageModel>& model, auto&& edit) {
    EngineOptions o = options();
    o.evictor = "pyramidkv:budget=40";
    edit(o);
    const auto core = EngineCore::create(model, o);
    return core.ok() ? std::string() : core.error().message;
  };
  const auto none = [](EngineOptions&) {};
  EXPECT_EQ(refusal(model_, none), "");
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.evictor = "scissorhands:layers=1.2.3"; }),
            "evictor scissorhands: layers: has shares of 3 layers, the model has 2; millrace budget-search finds those "
            "of a model");
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.evictor = "snapkv:heads=1.2"; }),
            "evictor snapkv: heads: has shares of 2 KV heads, the model has 4, 2 in each of 2 layers; millrace "
            "budget-search --heads finds those of a model");
  EXPECT_EQ(refusal(model_,
                    [](EngineOptions& o) {
                      o.evictor = "h2o:heads=1.2.3.4";
                      o.kernels = {"attention=bigbird:block=16"};
                    }),
            "evictor h2o:heads=1.2.3.4 does not go with attention bigbird:block=16: budgets differ by head, and a "
            "pattern's heads see blocks of one table; omit one of the two");
  const auto shared = [](const char* other) {
    return fmt::format(
        "evictor pyramidkv:budget=40 does not go with {}: its budgets differ by layer, so that every layer has blocks "
        "of "
        "its own, and blocks of all layers are needed; omit one of the two",
        other);
  };
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.kv_tier = memory_tier(100); }), shared("KV tier memory"));
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.kv_store = "ssd:path=/nonexistent/file,size=1M"; }),
            shared("KV store ssd"));
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.kv_pool = "virtual"; }),
            "evictor pyramidkv:budget=40 does not go with KV pool virtual: budgets differ by layer, and layers have no "
            "contiguous blocks; choose paged");
  EXPECT_EQ(
      refusal(model_, [](EngineOptions& o) { o.kv_format = "kivi"; }),
      "evictor pyramidkv:budget=40 does not go with KV format kivi: budgets differ by layer, and a stream's newest "
      "tokens, which are not encoded yet, are the same in every layer; use f16 or another format of rows");
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.document_context = "independent"; }),
            shared("context independent"));
  EXPECT_EQ(refusal(model_, [](EngineOptions& o) { o.drafter = "draft:model=" + golden_model("llama3"); }),
            "evictor pyramidkv:budget=40 does not go with drafter draft: budgets differ by layer, and a drafter's keys "
            "have none; use ngram, or none");
  const auto windowed = load_for(golden_model("gemma3"), *select_isa());
  EXPECT_EQ(
      refusal(windowed, none),
      "evictor pyramidkv:budget=40 does not go with this model: its layers with a window drop keys by themselves, and "
      "budgets differ by layer; use an evictor with one budget");
  const auto recurrent = LanguageModel::load(golden_model("mamba"), {.threads = 1, .context = 128});
  ASSERT_TRUE(recurrent.ok());
  EXPECT_EQ(refusal(*recurrent, none),
            "evictor pyramidkv:budget=40 does not go with this model: it has recurrent layers, whose state still holds "
            "dropped tokens; omit the evictor");

  Request r = make_request(2, 10, 10, model_->info().vocab);
  EngineOptions o = options();
  o.evictor = "pyramidkv:budget=40";
  auto core = make_core(model_, o);
  EXPECT_TRUE(core->check(r).ok());
  r.evictor = "h2o:budget=20,positions=cache";
  EXPECT_EQ(
      core->check(r).error().message,
      "evictor h2o:budget=20,positions=cache does not go with evictor pyramidkv:budget=40: positions=cache needs the "
      "same tokens in all layers, which have blocks of their own; use positions=text");
  r.evictor = "none";
  r.beams = 2;
  EXPECT_EQ(
      core->check(r).error().message,
      "beam search does not go with evictor pyramidkv:budget=40: its budgets differ by layer, so that every layer has "
      "blocks of its own, and blocks of all layers are needed; omit one of the two");
  r.beams = 1;
  r.evictor = "spatten";
  EXPECT_TRUE(core->check(r).ok());
  const char* start =
      "evictor spatten does not go with this engine: budgets that differ by layer need blocks of their own for layers; "
      "start the engine with this evictor, or another of its kind (--evictor)";
  for (const char* evictor : {"", "h2o"}) {
    o.evictor = evictor;
    EXPECT_EQ(make_core(model_, o)->check(r).error().message, start);
  }
}

// Budgets by head in engines without them, and the other way round.
TEST_F(LayerEvictorBits, TablesAreThoseOfTheEngine) {
  Request r = make_request(2, 10, 10, model_->info().vocab);
  EngineOptions o = options();
  r.evictor = "h2o:budget=40,heads=1.2.3.4";
  for (const char* evictor : {"", "h2o", "pyramidkv"}) {
    o.evictor = evictor;
    EXPECT_EQ(make_core(model_, o)->check(r).error().message,
              "evictor h2o:budget=40,heads=1.2.3.4 does not go with this engine: budgets that differ by KV head need "
              "blocks of "
              "their own for heads; start the engine with this evictor, or another of its kind (--evictor)");
  }
  o.evictor = "snapkv:budget=50,heads=4.3.2.1";
  auto core = make_core(model_, o);
  EXPECT_TRUE(core->check(r).ok());
  r.evictor = "pyramidkv";
  EXPECT_EQ(core->check(r).error().message,
            "evictor pyramidkv does not go with this engine: budgets differ by layer, and every KV head has blocks of "
            "its own "
            "in it; start another engine with this evictor, or choose one with budgets by head");
}

}  // namespace
}  // namespace millrace
