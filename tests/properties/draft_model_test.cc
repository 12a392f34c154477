// A second model that drafts over the engine's KV blocks: answers are those of plain decoding, and its own keys and
// values are right whatever happens to the blocks. A draft model that is the engine's model itself shows the latter:
// its drafts are always right, unless a key or a value of it is missing or stale.
#include <filesystem>

#include "properties/costed_executor.h"
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

std::string draft_of(const std::string& name, int64_t k) {
  return fmt::format("draft:k={},model={}", k, golden_model(name));
}

// Without steps of sampling that count the tokens before, which a draft does not.
std::vector<Request> plain_requests(int64_t vocab, int64_t seed = 0) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) {
    Request r = make_request(seed + i, 9 + 5 * i, 40 - i, vocab);
    if (i == 2) r.sampling.top_k = 20;
    if (i == 3) r.sampling.top_p = 0.8;
    if (i == 4) r.n = 3;
    requests.push_back(std::move(r));
  }
  return requests;
}

class DraftModels : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), *select_isa());
};

TEST_P(DraftModels, EventsAreThoseOfPlainDecoding) {
  int64_t drafted_tokens = 0, preempted = 0;
  for (uint64_t round = 1; round <= 2; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
      for (const std::string& drafter : {draft_of("llama3", 3), draft_of(GetParam(), 4)}) {
        SCOPED_TRACE(fmt::format("round {}, {}, {}", round, name, drafter));
        EngineOptions drafting = o;
        drafting.drafter = drafter;
        auto core = make_core(model_, drafting);
        ASSERT_TRUE(core);
        const DraftOutcome drafted = run_requests(*core, requests, 1);
        EXPECT_EQ(drafted.emitted, plain.emitted);
        EXPECT_GT(drafted.stats.drafted_tokens, 0);
        drafted_tokens += drafted.stats.accepted_tokens;
        preempted += drafted.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(drafted_tokens, 500);
  EXPECT_GT(preempted, 10);
}

// Greedy and drawn: both models draw with the random number of the position.
TEST_P(DraftModels, TheModelItselfDraftsWhatItSays) {
  int64_t preempted = 0;
  for (const auto& [name, o] : settings()) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", name, threads));
      EngineOptions drafting = o;
      drafting.threads = threads;
      drafting.drafter = draft_of(GetParam(), 4);
      auto core = make_core(model_, drafting);
      ASSERT_TRUE(core);
      const DraftOutcome run = run_requests(*core, plain_requests(model_->info().vocab), 2);
      EXPECT_GT(run.stats.drafted_tokens, 30);
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
      preempted += run.stats.preemptions;
    }
  }
  EXPECT_GT(preempted, 5);
}

// Blocks that streams leave behind have both models' keys and values, or are not left behind.
TEST_P(DraftModels, PrefixesServeBothModels) {
  const int64_t vocab = model_->info().vocab;
  for (const int64_t block_tokens : {4, 16}) {
    EngineOptions o = options(1, 512, block_tokens);
    o.drafter = draft_of(GetParam(), 3);
    auto core = make_core(model_, o);
    ASSERT_TRUE(core);
    const std::vector<Request> first = plain_requests(vocab);
    const DraftOutcome before = run_requests(*core, first, 1);
    std::vector<Request> second;
    for (size_t i = 0; i < first.size(); ++i) {
      Request r = first[i];
      const auto& answer = before.truth.at(static_cast<RequestId>(i + 1));
      r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
      r.max_tokens = 20;
      r.n = 1;
      second.push_back(r);
      r.sampling.seed += 100;  // shares the prompt with the one before, which is still computing it
      second.push_back(std::move(r));
    }
    const int64_t cached = core->stats().cached_tokens;
    const DraftOutcome after = run_requests(*core, second, 0);
    EXPECT_GT(core->stats().cached_tokens - cached, 6 * 40);
    EXPECT_EQ(after.stats.accepted_tokens, after.stats.drafted_tokens);
    o.drafter.clear();
    o.prefix_cache = false;
    EXPECT_EQ(after.emitted, run_requests(*make_core(model_, o), second, 0).emitted);
  }
}

// A draft is one of its batch's: one pass of the second model a token, for all streams.
TEST_P(DraftModels, CommitsWholeDraftsInOneStep) {
  EngineOptions o = options();
  o.drafter = draft_of(GetParam(), 4);
  auto core = make_core(model_, o);
  ASSERT_TRUE(core);
  for (RequestId id = 1; id <= 3; ++id)
    ASSERT_TRUE(core->add(id, make_request(static_cast<int64_t>(id), 12, 31, model_->info().vocab)).ok());
  std::vector<TokenEvent> events;
  int64_t steps = 0;
  for (; !core->idle(); ++steps) core->step(events);
  EXPECT_EQ(std::ssize(events), 3 * 31);
  EXPECT_EQ(steps, 1 + 30 / 5);
}

TEST_P(DraftModels, RecordedPlansReplay) {
  const auto requests = mixed_requests(5, model_->info().vocab);
  EngineOptions o = options(1, 40, 8);
  o.drafter = draft_of("llama3", 3);
  auto first = make_core(model_, o), second = make_core(model_, o);
  ASSERT_TRUE(first && second);
  for (size_t i = 0; i < requests.size(); ++i)
    for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  std::vector<TokenEvent> recorded, replayed;
  bool drafts = false;
  while (!first->idle()) {
    const std::string plan = first->step(recorded).to_string();
    drafts |= plan.find("]*3") != std::string::npos;
    ASSERT_TRUE(second->replay(StepPlan::parse(plan).value(), replayed).ok()) << plan;
  }
  EXPECT_TRUE(drafts);
  ASSERT_EQ(recorded.size(), replayed.size());
  for (size_t i = 0; i < recorded.size(); ++i) EXPECT_EQ(written(recorded[i]), written(replayed[i]));
}

INSTANTIATE_TEST_SUITE_P(Models, DraftModels, ::testing::Values("llama", "gemma3", "qwen3moe", "deepseek2"),
                         [](const auto& one) { return one.param; });

// Blocks on disk have both models' keys and values, whether streams wait for them or run while they arrive.
TEST_P(DraftModels, AStoreServesBothModels) {
  const std::vector<Request> requests = plain_requests(model_->info().vocab);
  const DraftOutcome plain = run_requests(*make_core(model_, options(1, 512, 8)), requests, 1);
  std::string folder = ::testing::TempDir() + "draft_store_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (const double load : {0.001, 9.0}) {
    EngineOptions o = options(1, 512, 8);
    o.drafter = draft_of(GetParam(), 3);
    o.kv_store = fmt::format("ssd:path={}/store{},size=4M", folder, load);
    for (const bool again : {false, true}) {
      SCOPED_TRACE(fmt::format("load {}, again {}", load, again));
      auto executor = CpuExecutor::create(model_, o);
      ASSERT_TRUE(executor.ok()) << executor.error().message;
      auto core =
          EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{.load = load}), o);
      ASSERT_TRUE(core.ok()) << core.error().message;
      const DraftOutcome run = run_requests(**core, requests, 1);
      EXPECT_EQ(run.emitted, plain.emitted);
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
      EXPECT_EQ(run.stats.store.hit_tokens > 0, again);
    }
  }
  std::filesystem::remove_all(folder);
}

// A copy of the sampler follows the draft through the grammar; where the grammar ends, so does the stream, mid-draft.
TEST_P(DraftModels, DraftsFollowAConstraint) {
  Request request = make_request(2, 20, 60, model_->info().vocab);
  request.constraint.kind = Constraint::Kind::regex;
  request.constraint.text = "([a-f]{3} ){12}";
  const DraftOutcome plain = run_requests(*make_core(model_, options()), {request}, 1);
  EngineOptions o = options();
  o.drafter = draft_of(GetParam(), 4);
  const DraftOutcome run = run_requests(*make_core(model_, o), {request}, 1);
  EXPECT_EQ(run.emitted, plain.emitted);
  EXPECT_GT(run.stats.accepted_tokens, 10);
  EXPECT_GE(run.stats.accepted_tokens + 4, run.stats.drafted_tokens);
}

TEST(DraftModel, AnEvictorDropsTokensOfBothModels) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options(2, 64, 4);
  o.evictor = "streamingllm:sinks=2,window=14";
  const std::vector<Request> requests = plain_requests(model->info().vocab);
  const DraftOutcome plain = run_requests(*make_core(model, o), requests, 1);
  o.drafter = draft_of("llama", 4);
  auto core = make_core(model, o);
  ASSERT_TRUE(core);
  const DraftOutcome drafted = run_requests(*core, requests, 1);
  EXPECT_EQ(drafted.emitted, plain.emitted);
  EXPECT_GT(drafted.stats.evicted_tokens, 50);
  EXPECT_GT(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens / 2);
}

// What does not go together is refused, and the message says what to do.
TEST(DraftModel, Refusals) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const auto error_of = [](const std::shared_ptr<const LanguageModel>& of, const EngineOptions& o) {
    const auto made = EngineCore::create(of, o);
    return made.ok() ? Error{} : made.error();
  };
  EngineOptions o = options();
  o.drafter = "draft";
  EXPECT_EQ(error_of(model, o).message,
            "drafter draft: no draft model in the binary has this model's vocabulary; name a smaller model that does, "
            "draft:model=PATH");
  o.drafter = "draft:model=stories-draft";
  EXPECT_EQ(
      error_of(model, o).message,
      "drafter draft: stories-draft has a vocabulary of 4096 tokens, the model has 128; choose a draft model of the "
      "same family");
  o.drafter = "draft:model=/nowhere.gguf";
  EXPECT_TRUE(error_of(model, o).message.starts_with("drafter draft: model: /nowhere.gguf"))
      << error_of(model, o).message;
  o.drafter = draft_of("mamba", 4);
  EXPECT_EQ(error_of(model, o).kind, ErrorKind::unsupported);
  EXPECT_EQ(
      error_of(model, o).message,
      fmt::format("drafter draft: {} has recurrent layers, which cannot take back a rejected token; choose a draft "
                  "model of attention layers",
                  golden_model("mamba")));
  o.drafter = draft_of("llama", 4);
  o.kv_format = "kivi";
  EXPECT_EQ(error_of(model, o).message,
            "drafter draft does not go with KV format kivi: it encodes whole blocks of one model; use f16 or another "
            "format of "
            "rows");
  o.kv_format = "f16";
  o.document_context = "kvlink";
  auto core = make_core(model, o);
  ASSERT_TRUE(core);
  Request request = make_request(1, 20, 4, model->info().vocab);
  request.documents = {{2, 10}};
  const auto refused = core->check(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "context kvlink does not go with drafter draft: it sees the prompt in order and has no keys that move; use "
            "ngram, or "
            "no drafter");
}

TEST(DraftModel, OneBudgetCountsBothModels) {
  auto model = LanguageModel::load(golden_model("llama"), {.threads = 1, .context = 128, .memory = int64_t{1} << 30});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto bytes = [&](const char* name) {
    for (const MemoryAccount& one : (*model)->parts().accounts->list())
      if (one.name == name) return one.bytes;
    return int64_t{0};
  };
  EngineOptions o = options();
  o.drafter = draft_of("llama3", 4);
  {
    auto core = make_core(*model, o);
    ASSERT_TRUE(core);
    EXPECT_GT(bytes("draft model"), 0);
    EXPECT_GT(bytes("drafter"), 0);
    int64_t token = 0;  // in both models
    auto draft = load_for(golden_model("llama3"), *select_isa());
    for (const auto& one : {(*model)->parts().model->kv_layers(), draft->parts().model->kv_layers()})
      for (const KvLayer& layer : one) token += 2 * layer.kv_heads * layer.head_dim * 2;
    EXPECT_EQ(bytes("KV"), 4096 * token);
  }
  EXPECT_EQ(bytes("drafter"), 0);
  EXPECT_EQ(bytes("draft model"), 0);
  EXPECT_EQ(bytes("KV"), 0);
}

// Keys and values of another draft model are other keys and values.
TEST(DraftModel, IdentityNamesBothModels) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  std::vector<std::string> texts;
  for (const char* name : {"llama", "llama", "llama_bias", ""}) {
    EngineOptions o = options();
    if (*name) o.drafter = draft_of(name, 4);
    auto executor = CpuExecutor::create(model, o);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    auto identity = (*executor)->home().kv_identity();
    ASSERT_TRUE(identity.ok());
    texts.push_back(*identity);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
  EXPECT_NE(texts[0], texts[3]);
  EXPECT_TRUE(texts[0].starts_with(texts[3]));
}

}  // namespace
}  // namespace millrace
