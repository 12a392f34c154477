// Documents that are computed apart, in streams whose evictor drops tokens of them: bits do not depend on chunks,
// threads, blocks, other streams, drafts, preemption, or on whether a document came from the prefix cache; a whole
// budget changes nothing; blocks go back to the pool, and what the cache holds of documents stays whole. What is left
// is defined step by step in context_definitions_test.cc.
#include <fmt/format.h>

#include "properties/document_requests.h"
#include "properties/preempted_run.h"
#include "properties/whole_evictor.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct EvictedCase {
  const char* context;
  const char* evictor;
  const char* model = "llama3";
  const char* kv_format = "f16";
  const char* pattern = "";  // of attention
};

class EvictedDocuments : public ::testing::TestWithParam<EvictedCase> {
 protected:
  static constexpr int64_t kAnswer = 24;

  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    documents_ = {text(1, 23), text(2, 33), text(3, 16)};
    question_ = text(4, 9);
  }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const { return make_request(seed, tokens, 1, vocab_).prompt; }
  EngineOptions evicting(EngineOptions o = options(), const std::string& evictor = GetParam().evictor) const {
    o.document_context = GetParam().context;
    o.kv_format = GetParam().kv_format;
    o.evictor = evictor;
    if (*GetParam().pattern) o.kernels = {std::string("attention=") + GetParam().pattern};
    return o;
  }
  Request request(const std::vector<size_t>& order = {0, 1, 2}) const {
    std::vector<std::vector<TokenId>> documents;
    for (const size_t i : order) documents.push_back(documents_[i]);
    Request one = document_request(documents, question_);
    one.max_tokens = kAnswer;
    return one;
  }
  Shown run_one(EngineCore& core, Request r, RequestId id = 1) const {
    const auto added = core.add(id, std::move(r));
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().message);
    Shown shown = run_all(core, vocab_)[id];
    EXPECT_EQ(core.kv().free_blocks() + core.stats().kv_blocks_cached, core.kv().total_blocks());
    return shown;
  }
  Shown run_one(const EngineOptions& o, Request r) const { return run_one(*make_core(model_, o), std::move(r)); }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  std::vector<std::vector<TokenId>> documents_;
  std::vector<TokenId> question_;
};

TEST_P(EvictedDocuments, BitsDoNotDependOnHowTheyAreComputed) {
  const Shown expected = run_one(evicting(), request());
  EXPECT_EQ(std::ssize(expected.tokens), kAnswer);
  EXPECT_FALSE(run_one(evicting(options(), ""), request()).same_bits(expected)) << "the others would prove nothing";
  for (int threads : {2, 3}) EXPECT_TRUE(run_one(evicting(options(threads)), request()).same_bits(expected)) << threads;
  for (int64_t chunk : {1, 7, 20}) {
    EngineOptions o = evicting(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request()).same_bits(expected)) << chunk;
  }
  for (int64_t block : {1, 8, *GetParam().pattern ? 4 : 64})
    EXPECT_TRUE(run_one(evicting(options(2, 512, block)), request()).same_bits(expected)) << block;
}

TEST_P(EvictedDocuments, ComputedOrCopiedDoesNotShow) {
  for (int64_t block : {8, *GetParam().pattern ? 4 : 5}) {
    const EngineOptions o = evicting(options(1, 512, block));
    Request turned = request({2, 1, 0});
    const Shown cold = run_one(o, turned);
    EXPECT_EQ(cold.cached, 0);
    auto core = make_core(model_, o);
    run_one(*core, request(), 1);
    const Shown warm = run_one(*core, turned, 2);
    EXPECT_TRUE(warm.same_bits(cold)) << block;
    EXPECT_GE(warm.cached, 72);
    turned.evictor = "none";  // what the first two have dropped is still in the cache
    const Shown whole = run_one(*core, turned, 3);
    EXPECT_EQ(whole.cached, warm.cached);
    EXPECT_TRUE(whole.same_bits(run_one(evicting(options(1, 512, block), ""), request({2, 1, 0})))) << block;
  }
}

TEST_P(EvictedDocuments, OtherStreamsAndAnswersDoNotShow) {
  const Shown expected = run_one(evicting(), request());
  auto core = make_core(model_, evicting(options(2, 40)));
  Request plain = make_request(5, 30, 30, vocab_), kept = request({1, 0}), two = request();
  plain.evictor = "window:budget=20,slack=3";
  kept.evictor = "none";
  two.n = 2;
  ASSERT_TRUE(core->add(2, plain).ok());
  ASSERT_TRUE(core->add(3, kept).ok());
  ASSERT_TRUE(core->add(1, two).ok());
  auto shown = run_all(*core, vocab_);
  for (int64_t answer : {0, 1})  // both are greedy
    EXPECT_TRUE(shown[answer_stream(1, answer)].logits == expected.logits) << answer;
  EXPECT_TRUE(shown[3].same_bits(run_one(evicting(options(), ""), request({1, 0}))));
}

TEST_P(EvictedDocuments, PreemptedAtAnyStageTheyContinue) {
  const Shown alone = run_one(evicting(), request());
  for (const bool swapped : {false, true})
    for (const int64_t every : {2, 5, 9}) {
      EngineOptions o = evicting(options(1, 12, 4));
      o.kv_tier = memory_tier(swapped ? 200 : 0);
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, request()).ok());
      EXPECT_EQ(tokens_when_preempted(*core, every, swapped), alone.tokens) << every << " " << swapped;
    }
}

TEST_P(EvictedDocuments, DraftsDoNotShow) {
  Request r = request();
  r.sampling.temperature = 0;
  const Shown plain = run_one(evicting(), r);
  EngineOptions o = evicting();
  o.drafter = "ngram:n=2,min=1,k=4";
  EXPECT_EQ(run_one(o, r).tokens, plain.tokens);
}

// Of the documents no more is stored than the budget and the slack, once they have been seen.
TEST_P(EvictedDocuments, BlocksGoBackToThePool) {
  EngineOptions o = evicting(options(1, 512, 4));
  o.prefix_cache = false;
  auto core = make_core(model_, o);
  const auto rule = *make_eviction_rule(GetParam().evictor);
  ASSERT_TRUE(core->add(1, request()).ok());
  int64_t most = 0, dropped = 0;
  for (std::vector<TokenEvent> events; !core->idle(); events.clear()) {
    core->step(events);
    ASSERT_TRUE(core->check_blocks().ok());
    const int64_t held = core->kv().total_blocks() - core->kv().free_blocks();
    most = std::max(most, held);
    if (core->stats().evicted_tokens > 0) {
      EXPECT_LE(held, core->kv().blocks_for(rule->most_stored()));
    }
    dropped = core->stats().evicted_tokens;
  }
  EXPECT_GE(most, core->kv().blocks_for(1 + 23 + 33 + 16)) << "documents are stored whole before";
  EXPECT_GE(dropped, 73 + 9 - rule->evictor->budget());
  EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
}

INSTANTIATE_TEST_SUITE_P(
    All, EvictedDocuments,
    ::testing::Values(
        EvictedCase{"kvlink", "streamingllm:sinks=4,window=30,slack=5"},
        EvictedCase{"kvlink", "streamingllm:sinks=4,window=30,slack=3,prompt=evicted,positions=cache"},
        EvictedCase{"kvlink", "h2o:budget=40,recent=0.3,slack=5"},
        EvictedCase{"kvlink", "snapkv:budget=40,window=8,kernel=5,slack=5,scope=head", "smollm3"},
        EvictedCase{"kvlink", "h2o:budget=40,slack=4,prompt=evicted,scope=head", "deepseek2"},
        EvictedCase{"kvlink", "tova:budget=40,slack=6,positions=cache", "llama3", "f16",
                    "quest:block=16,top=1,sinks=0,window=1,first=0,phase=decode"},
        EvictedCase{"kvlink", "key_norm:budget=40,recent=6,slack=5"},
        EvictedCase{"kvlink", "key_norm:budget=40,recent=6,slack=4,prompt=evicted,scope=layer", "deepseek2"},
        EvictedCase{"ape:T=0.8,S=0.7", "key_norm:budget=40,slack=5,scope=stream", "smollm3"},
        EvictedCase{"cacheblend:ratio=0.3", "key_norm:budget=40,recent=6,slack=5,prompt=evicted", "smollm3",
                    "progressive:below=0.2,format=f8_e4m3"},
        EvictedCase{"independent", "scissorhands:budget=40,recent=6,history=12,slack=5"},
        EvictedCase{"ape:T=0.8,S=0.7", "h2o:budget=40,slack=5"},
        EvictedCase{"ape:T=0.8,S=0.7", "snapkv:budget=40,window=8,kernel=5,slack=5,scope=head,prompt=evicted"},
        EvictedCase{"ape:T=0.8,S=0.7", "tova:budget=40,slack=5", "smollm3", "f16",
                    "bigbird:block=16,window=1,global=0,random=1"},
        EvictedCase{"entropy:top=2", "h2o:budget=40,slack=5,scope=stream,worth=sum"},
        EvictedCase{"entropy:top=1", "scissorhands:budget=40,recent=6,history=12,slack=7,scope=layer", "smollm3"},
        EvictedCase{"entropy:top=2", "window:budget=16,slack=5"},  // whole documents are gone
        EvictedCase{"epic:recompute=5", "h2o:budget=40,slack=5,prompt=evicted", "smollm3",
                    "progressive:below=0.2,format=f8_e4m3"},
        EvictedCase{"cacheblend:ratio=0.3", "random:budget=40,slack=5", "smollm3"}),
    [](const auto& test) {
      std::string name = std::string(test.param.context) + "_" + test.param.evictor + "_" + test.param.model;
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

// With every context and every evictor of one budget, whoever chooses.
TEST(EvictedDocumentsBudget, OfTheWholeLengthIsTheContextAlone) {
  const auto model = load_for(golden_model("smollm3"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  const Request request = document_request({text(1, 13), text(2, 17)}, text(3, 5));
  const auto run = [&](const char* context, const std::string& evictor) {
    EngineOptions o = options();
    o.document_context = context;
    o.evictor = evictor;
    auto core = make_core(model, o);
    EXPECT_TRUE(core->add(1, request).ok()) << context << " " << evictor;
    Shown shown = run_all(*core, vocab)[1];
    EXPECT_EQ(core->stats().evicted_tokens, 0) << context << " " << evictor;
    return shown;
  };
  for (const char* context :
       {"independent", "kvlink", "ape:T=0.8,S=0.7", "entropy:top=1", "epic:recompute=5", "cacheblend:ratio=0.3"}) {
    const Shown plain = run(context, "");
    int64_t members = 0;
    for (const auto& entry : token_evictors().entries()) {
      const auto rule = make_eviction_rule(entry.info.name);
      if (!rule.ok() || (*rule)->by_layer()) continue;
      ++members;
      const std::string evictor = whole_evictor(entry.info, 60);
      for (const char* rest : {"", ",slack=1,prompt=evicted", ",scope=head,slack=3"})
        EXPECT_TRUE(run(context, evictor + rest).same_bits(plain)) << context << " " << evictor << rest;
    }
    EXPECT_GT(members, 6);
  }
}

// Three documents and a question, answered by an engine of its own.
Shown run_three(const std::shared_ptr<const LanguageModel>& model, const char* context, const std::string& evictor) {
  const int64_t vocab = model->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  Request request = document_request({text(1, 23), text(2, 33), text(3, 16)}, text(4, 9));
  request.max_tokens = 24;
  EngineOptions o = options();
  o.document_context = context;
  o.evictor = evictor;
  o.kv_format = "f32";  // a stored key is the computed one
  auto core = make_core(model, o);
  EXPECT_TRUE(core->add(1, request).ok());
  return run_all(*core, vocab)[1];
}

// Documents that are computed again whole are those of a plain prompt. So is what evictors drop of them, where the
// queries that they observe are of the question, or their keys are rows of F32, which are judged as they are stored.
TEST(EvictedDocumentsReference, ComputingAllAgainIsAPlainPrompt) {
  const auto model = load_for(golden_model("smollm3"), *select_isa());
  ASSERT_TRUE(model);
  const auto run = [&](const char* context, const std::string& evictor) { return run_three(model, context, evictor); };
  for (const char* evictor :
       {"streamingllm:sinks=4,window=30,slack=5", "streamingllm:sinks=4,window=30,slack=5,positions=cache",
        "tova:budget=40,slack=5", "tova:budget=40,slack=5,scope=layer", "tova:budget=40,slack=5,positions=cache",
        "snapkv:budget=40,window=8,kernel=5,slack=5,scope=head", "scissorhands:budget=40,recent=6,history=9,slack=5",
        "key_norm:budget=40,recent=6,slack=5", "key_norm:budget=40,slack=5,scope=stream"})
    EXPECT_TRUE(run("epic:recompute=1024", evictor).same_bits(run("", evictor))) << evictor;
}

// Heads that choose alike have the bits of one choice for all, also where each has its own view of the documents.
TEST(EvictedDocumentsReference, HeadsThatChooseAlikeAreOneStream) {
  const auto model = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model);
  const auto run = [&](const char* context, const std::string& evictor) { return run_three(model, context, evictor); };
  for (const char* context : {"ape:T=0.8,S=0.7", "entropy:top=1"})
    for (const std::string evictor : {"random:budget=40,slack=5", "window:budget=30,slack=4"})
      EXPECT_TRUE(run(context, evictor + ",scope=head").same_bits(run(context, evictor))) << context << " " << evictor;
}

TEST(EvictedDocumentsErrors, NameBoth) {
  const auto model = load_for(golden_model("llama3"), *select_isa()),
             mixed = load_for(golden_model("gemma3"), *select_isa());
  ASSERT_TRUE(model && mixed);
  const auto refusal = [](const std::shared_ptr<const LanguageModel>& of, const char* engine, const char* context,
                          const char* evictor) -> std::string {
    EngineOptions o = options();
    o.evictor = engine;
    o.context = 64;
    Request request = document_request({{3, 4, 5}, {6, 7}}, {8, 9});
    request.document_context = context;
    request.evictor = evictor;
    const auto added = make_core(of, o)->add(1, request);
    return added.ok() ? "" : added.error().message;
  };
  EXPECT_EQ(refusal(model, "", "kvlink", "snapkv:budget=16"), "");
  for (const char* evictor : {"pyramidkv:budget=40", "spatten:keep=20,final=10", "h2o:budget=20,layers=1.1"})
    EXPECT_EQ(
        refusal(model, evictor, "kvlink", evictor),
        fmt::format("context kvlink does not go with evictor {}: its budgets differ by layer, so that every layer has "
                    "blocks of its own, and blocks of all layers are needed; omit one of the two",
                    evictor));
  EXPECT_EQ(
      refusal(model, "", "independent", "h2o:budget=20,positions=cache"),
      "context independent does not go with evictor h2o:budget=20,positions=cache: documents share positions, and "
      "positions=cache makes positions of slots; use positions=text, or a context that moves keys, such as kvlink");
  EXPECT_EQ(refusal(model, "", "epic", "h2o:budget=20,positions=cache"), "");
  EXPECT_EQ(
      refusal(mixed, "h2o:budget=20", "kvlink", "h2o:budget=20"),
      "context kvlink does not go with evictor h2o:budget=20: layers with a window have blocks of their own where "
      "an evictor drops tokens; start the engine without an evictor");
}

// With positions of the cache a question may be longer than the context, but not the documents, which are stored whole.
TEST(EvictedDocumentsErrors, DocumentsMustFitTheContext) {
  const auto model = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  std::vector<Shown> shown;
  for (const int64_t context : {40, 128}) {
    EngineOptions o = options(1, 512, 4);
    o.context = context;
    o.document_context = "kvlink";
    o.evictor = "streamingllm:sinks=2,window=20,slack=4,prompt=evicted,positions=cache";
    auto core = make_core(model, o);
    ASSERT_TRUE(core->add(1, document_request({text(1, 18), text(2, 15)}, text(3, 60))).ok());
    shown.push_back(run_all(*core, vocab)[1]);
    if (context > 40) continue;
    const auto added = core->add(2, document_request({text(1, 18), text(2, 18)}, text(3, 60)));
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().message,
              "documents: end at token 37, and the 4 that evictor "
              "streamingllm:sinks=2,window=20,slack=4,prompt=evicted,positions=cache keeps behind them exceed the "
              "context of 40; shorten them or raise the context");
  }
  EXPECT_TRUE(shown[0].same_bits(shown[1]));
}

}  // namespace
}  // namespace millrace
