// Drafters that read the model's hidden states: answers are those of plain decoding, and the hidden states and the keys
// of the drafting layer are right whatever happens to the blocks. A model whose next token is a fixed function of its
// last one shows the latter: heads and layers that know the function are always right, unless the state that they read
// is another token's.
#include "properties/costed_executor.h"
#include "properties/draft_checkpoints.h"
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;

const std::string kHeads = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/draft_heads/";

// ---- random checkpoints
// ----------------------------------------------------------------------------------------------
class TrainedDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ =
      load_for(kHeads + (GetParam().starts_with("mtp") ? "mtp" : "target"), *select_isa());
};

TEST_P(TrainedDrafts, EventsAreThoseOfPlainDecoding) {
  int64_t drafted_tokens = 0, preempted = 0;
  bool fixed = true;
  const auto requests = mixed_requests(1, model_->info().vocab);
  for (const auto& [name, o] : settings()) {
    SCOPED_TRACE(name);
    const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
    EngineOptions drafting = o;
    drafting.drafter = fmt::format(fmt::runtime(GetParam()), kHeads);
    drafting.draft_length = std::exchange(fixed, !fixed) ? "fixed" : "auto";
    auto core = make_core(model_, drafting);
    ASSERT_TRUE(core);
    const DraftOutcome drafted = run_requests(*core, requests, 1);
    EXPECT_EQ(drafted.emitted, plain.emitted);
    drafted_tokens += drafted.stats.drafted_tokens;
    preempted += drafted.stats.preemptions;
  }
  EXPECT_GT(drafted_tokens, 500);
  EXPECT_GT(preempted, 5);
}

TEST_P(TrainedDrafts, RecordedPlansReplay) {
  const auto requests = mixed_requests(5, model_->info().vocab);
  EngineOptions o = options(1, 40, 8);
  o.drafter = fmt::format(fmt::runtime(GetParam()), kHeads);
  auto first = make_core(model_, o), second = make_core(model_, o);
  ASSERT_TRUE(first && second);
  for (size_t i = 0; i < requests.size(); ++i)
    for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  std::vector<TokenEvent> recorded, replayed;
  while (!first->idle()) {
    const std::string plan = first->step(recorded).to_string();
    ASSERT_TRUE(second->replay(StepPlan::parse(plan).value(), replayed).ok()) << plan;
  }
  ASSERT_EQ(recorded.size(), replayed.size());
  for (size_t i = 0; i < recorded.size(); ++i) EXPECT_EQ(written(recorded[i]), written(replayed[i]));
}

// Another drafter with a model, whose drafts are noted by the tokens that they follow.
class Noted final : public ModelDrafter {
 public:
  using Drafts = std::map<std::vector<TokenId>, std::vector<TokenId>>;
  Noted(std::unique_ptr<ModelDrafter> inner, Drafts& drafts) : inner_(std::move(inner)), drafts_(drafts) {}
  std::shared_ptr<DraftMemory> remember() const override { return inner_->remember(); }
  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    inner_->propose_all(chunks, model);
    for (const DraftChunk& chunk : chunks)
      if (chunk.drafted > 0) drafts_[chunk.stream->tokens] = chunk.stream->draft.tokens;
  }
  void follow(std::span<const DraftChunk> chunks, DraftModel& model) override { inner_->follow(chunks, model); }

 private:
  std::unique_ptr<ModelDrafter> inner_;
  Drafts& drafts_;
};

std::unique_ptr<Drafter> noted_drafter(const std::string& name, Noted::Drafts& drafts) {
  auto drafter = make_drafter(name).value();
  drafter->model->drafter = std::make_unique<Noted>(std::move(drafter->model->drafter), drafts);
  return drafter;
}

// A stream that has drafted, was preempted, and shares its blocks drafts what a stream drafts that begins there.
TEST_P(TrainedDrafts, DraftsAreThoseOfAFreshStream) {
  const std::string drafter = fmt::format(fmt::runtime(GetParam()), kHeads);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 5; ++i) requests.push_back(make_request(2 * i, 9 + 4 * i, 45, model_->info().vocab));
  for (const auto& [name, o] : settings()) {
    if (name != "swaps") continue;
    SCOPED_TRACE(name);
    Noted::Drafts noted, fresh;
    EngineOptions drafting = o;
    drafting.drafter = drafter;
    run_requests(*core_with(model_, drafting, noted_drafter(drafter, noted)), requests, 2);
    EngineOptions plenty = options(1, 512, 16);
    plenty.prefix_cache = false;
    plenty.drafter = drafter;
    std::vector<Request> again;
    std::erase_if(noted, [i = 0](const auto&) mutable { return ++i % 2 != 0; });  // half of them
    for (const auto& [tokens, draft] : noted) {
      Request r = make_request(0, 1, 20, model_->info().vocab);
      r.prompt.assign(tokens.begin(), tokens.end() - 1);
      again.push_back(std::move(r));
    }
    run_requests(*core_with(model_, plenty, noted_drafter(drafter, fresh)), again, 1);
    int64_t compared = 0;
    for (const auto& [tokens, draft] : noted) {
      const auto same = fresh.find(tokens);
      ASSERT_NE(same, fresh.end());
      if (same->second.size() != draft.size()) continue;  // a step with less room
      EXPECT_EQ(draft, same->second);
      ++compared;
    }
    EXPECT_GT(compared, 25);
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, TrainedDrafts,
                         ::testing::Values("medusa:k=3,tokens=6,model={}medusa", "medusa:k=2,top=1,model={}medusa",
                                           "eagle:k=3,tokens=6,top=2,model={}eagle", "eagle:k=3,top=1,model={}eagle",
                                           "eagle:k=4,tokens=7,top=3,tree=static,model={}eagle",
                                           "eagle:k=3,tokens=6,top=2,model={}eagle3", "mtp:k=3",
                                           "mtp:k=3,tokens=6,top=2", "kangaroo:p=0,k=4,model={}kangaroo",
                                           "kangaroo:p=0.05,exit=5,model={}kangaroo", "pass:k=3,model={}pass",
                                           "longspec:k=3,top=1,model={}longspec",
                                           "longspec:k=3,tokens=6,top=2,model={}longspec"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

// The draft behind these tokens, the last of which is the model's likeliest one; with keys in f32, as in the reference.
std::vector<TokenId> draft_behind(const std::vector<TokenId>& tokens, const std::string& drafter) {
  const auto model = load_for(kHeads + "target", *select_isa());
  EXPECT_TRUE(model);
  EngineOptions o = options(1, 64, 8);
  o.kv_format = "f32";
  o.drafter = drafter;
  o.draft_length = "fixed";
  Request r = make_request(0, 1, 12, model->info().vocab);
  r.prompt.assign(tokens.begin(), tokens.end() - 1);
  r.sampling = {.temperature = 0};
  Noted::Drafts noted;
  run_requests(*core_with(model, o, noted_drafter(drafter, noted)), {r}, 1);
  const auto found = noted.find(tokens);
  return found == noted.end() ? std::vector<TokenId>() : found->second;
}

// Against the reference (make_draft_heads.py), however many tokens may be drafted.
TEST(TrainedDraft, LookaheadTokensMatchTheReference) {
  const auto expected = nlohmann::json::parse(std::ifstream(kHeads + "pass/expected.json"));
  const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
  const auto drafted = expected["greedy"].get<std::vector<TokenId>>();
  ASSERT_EQ(drafted.size(), 5U);
  for (const int64_t ahead : {1, 4})
    EXPECT_EQ(draft_behind(tokens, fmt::format("pass:k={},model={}pass", ahead, kHeads)),
              std::vector<TokenId>(drafted.begin(), drafted.begin() + ahead + 1));
}

// The same, behind streams of several lengths.
TEST(TrainedDraft, CrossAttentionMatchesTheReference) {
  const auto cases = nlohmann::json::parse(std::ifstream(kHeads + "longspec/expected.json"))["cases"];
  ASSERT_GE(cases.size(), 5U);
  for (const auto& one : cases)
    EXPECT_EQ(draft_behind(one["tokens"].get<std::vector<TokenId>>(),
                           fmt::format("longspec:k=4,top=1,model={}longspec", kHeads)),
              one["greedy"].get<std::vector<TokenId>>());
}

// The model's own choice is the first token of a draft.
TEST(TrainedDraft, LookaheadTokensKeepTheirFirstOne) {
  const auto model = load_for(kHeads + "target", *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.drafter = fmt::format("pass:k=2,model={}pass", kHeads);
  auto core = make_core(model, o);
  ASSERT_TRUE(core);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 5; ++i) requests.push_back(make_request(i, 9 + 4 * i, 40, model->info().vocab));
  const DraftOutcome run = run_requests(*core, requests, 1);
  EXPECT_GT(run.stats.drafted_at[0], 50);
  EXPECT_EQ(run.stats.accepted_at[0], run.stats.drafted_at[0]);
}

// ---- checkpoints that know the model
// ---------------------------------------------------------------------------------
class PerfectDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "perfect_drafts_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    model_ = load_for(write_target(folder_ / "target"), *select_isa());
    ASSERT_TRUE(model_);
    write_medusa(folder_ / "medusa");
    write_eagle(folder_ / "eagle_token", false);
    write_eagle(folder_ / "eagle_feature", true);
    write_eagle3(folder_ / "eagle3");
    write_kangaroo(folder_ / "kangaroo");
    drafter_ = fmt::format(fmt::runtime(GetParam()), folder_.string());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<Request> requests(int64_t seed = 0) const {
    std::vector<Request> all;
    for (int64_t i = 0; i < 6; ++i) {
      Request r = make_request(seed + i, 9 + 5 * i, 40 - i, kTokens);
      if (i == 4) r.n = 3;
      all.push_back(std::move(r));
    }
    return all;
  }

  fs::path folder_;
  std::shared_ptr<const LanguageModel> model_;
  std::string drafter_;
};

TEST_P(PerfectDrafts, AreRightWhateverHappensToTheBlocks) {
  int64_t preempted = 0;
  for (const auto& [name, o] : settings()) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", name, threads));
      EngineOptions drafting = o;
      drafting.threads = threads;
      drafting.drafter = drafter_;
      auto core = make_core(model_, drafting);
      ASSERT_TRUE(core);
      const DraftOutcome run = run_requests(*core, requests(), 2);
      EXPECT_GT(run.stats.drafted_tokens, 30);
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
      preempted += run.stats.preemptions;
      for (const auto& [stream, tokens] : run.truth)
        for (size_t i = 1; i < tokens.size(); ++i)
          ASSERT_EQ(tokens[i], static_cast<TokenId>(next_token(tokens[i - 1])));
    }
  }
  EXPECT_GT(preempted, 5);
}

TEST_P(PerfectDrafts, PrefixesServeThemToo) {
  for (const int64_t block_tokens : {4, 16}) {
    EngineOptions o = options(1, 512, block_tokens);
    o.drafter = drafter_;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core);
    const std::vector<Request> first = requests();
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
  }
}

// Blocks on disk have the hidden states, too, whether streams wait for them or run while they arrive.
TEST_P(PerfectDrafts, AStoreServesThemToo) {
  for (const double load : {0.001, 9.0}) {
    EngineOptions o = options(1, 512, 8);
    o.drafter = drafter_;
    o.kv_store = fmt::format("ssd:path={}/store{},size=4M", folder_.string(), load);
    for (const bool again : {false, true}) {
      SCOPED_TRACE(fmt::format("load {}, again {}", load, again));
      auto executor = CpuExecutor::create(model_, o);
      ASSERT_TRUE(executor.ok()) << executor.error().message;
      auto core =
          EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{.load = load}), o);
      ASSERT_TRUE(core.ok()) << core.error().message;
      const DraftOutcome run = run_requests(**core, requests(), 1);
      EXPECT_GT(run.stats.drafted_tokens, 30);
      EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
      EXPECT_EQ(run.stats.store.hit_tokens > 0, again);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, PerfectDrafts,
                         ::testing::Values("medusa:k=3,top=1,model={}/medusa", "eagle:k=4,top=1,model={}/eagle_token",
                                           "eagle:k=4,top=1,model={}/eagle_feature", "eagle:k=4,top=1,model={}/eagle3",
                                           "kangaroo:k=4,p=0,model={}/kangaroo"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

// A model of one layer, and EAGLE's layer with the same weights: it misses the first token only, so most drafts are
// right as long as it has the keys and values of all the others.
TEST(TrainedDraft, KeysAndValuesAreThoseOfAllTokens) {
  std::string name = ::testing::TempDir() + "copied_layer_XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  Checkpoint target(folder / "target", 1);
  Rows signs = drawn(7, kTokens, kTokens, 1);  // rows that a norm leaves alone
  for (auto& row : signs)
    for (float& value : row) value = value < 0 ? -1.0f : 1.0f;
  target.add("model.embed_tokens.weight", signs);
  target.add("model.layers.0.input_layernorm.weight", ones(), true);
  add_drawn_layer(target, "model.layers.0.");
  target.add("model.norm.weight", ones(), true);
  target.add("lm_head.weight", drawn(8, kTokens, kTokens, 4));
  Checkpoint copy(folder / "layer", 1);
  Rows identity = zeros(kTokens, kTokens);
  for (size_t i = 0; i < identity.size(); ++i) identity[i][i] = 1;
  copy.add("fc.weight", beside({identity, zeros(kTokens, kTokens)}));
  add_drawn_layer(copy, "layers.0.");
  const auto model = load_for(target.write(), *select_isa());
  ASSERT_TRUE(model);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) requests.push_back(make_request(2 * i, 12 + 5 * i, 50, kTokens));
  const std::string path = copy.write();
  for (const char* options_of : {"k=4,top=1", "k=3,tokens=8,top=3"}) {
    double plenty = 0;
    for (const auto& [setting, o] : settings()) {
      EngineOptions drafting = o;
      drafting.drafter = fmt::format("eagle:{},model={}", options_of, path);
      auto core = make_core(model, drafting);
      ASSERT_TRUE(core);
      const DraftOutcome run = run_requests(*core, requests, 2);
      const double share = static_cast<double>(run.stats.accepted_at[0]) / static_cast<double>(run.stats.drafted_at[0]);
      if (plenty == 0) plenty = share;
      EXPECT_NEAR(share, plenty, 0.05) << options_of << ", " << setting;
    }
    EXPECT_GT(plenty, 0.8) << options_of;
  }
  fs::remove_all(folder);
}

// A model whose last layer only attends, and an adapter with the same weights behind the layers before it, which is
// then always right as long as it has the keys and values of all tokens.
TEST(TrainedDraft, AnAdapterHasTheKeysAndValuesOfAllTokens) {
  std::string name = ::testing::TempDir() + "copied_adapter_XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  Checkpoint target(folder / "target", 2);
  target.add("model.embed_tokens.weight", drawn(7, kTokens, kTokens, 4));
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    target.add(std::string(layer) + "input_layernorm.weight", ones(), true);
  add_drawn_layer(target, "model.layers.0.");
  add_drawn_attention(target, "model.layers.1.");
  target.add("model.layers.1.post_attention_layernorm.weight", ones(), true);
  target.add_mlp("model.layers.1.", zeros(kTokens, kTokens), zeros(kTokens, kTokens));
  target.add("model.norm.weight", ones(), true);
  target.add("lm_head.weight", drawn(8, kTokens, kTokens, 4));
  Checkpoint adapter(folder / "adapter", 1);
  adapter.add("layers.0.input_layernorm.weight", ones(), true);
  add_drawn_attention(adapter, "layers.0.");
  adapter.add("norm.weight", ones(), true);
  const auto model = load_for(target.write(), *select_isa());
  ASSERT_TRUE(model);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) requests.push_back(make_request(2 * i, 12 + 5 * i, 50, kTokens));
  const std::string path = adapter.write();
  int64_t preempted = 0;
  for (const auto& [setting, o] : settings()) {
    SCOPED_TRACE(setting);
    EngineOptions drafting = o;
    drafting.drafter = fmt::format("kangaroo:exit=1,k=4,p=0,model={}", path);
    auto core = make_core(model, drafting);
    ASSERT_TRUE(core);
    const DraftOutcome run = run_requests(*core, requests, 2);
    EXPECT_GT(run.stats.drafted_tokens, 50);
    EXPECT_EQ(run.stats.accepted_tokens, run.stats.drafted_tokens);
    preempted += run.stats.preemptions;
  }
  EXPECT_GT(preempted, 0);
  fs::remove_all(folder);
}

// A tree's best branch is the chain: all of it is kept, whatever else the tree has.
class PerfectTrees : public PerfectDrafts {};

TEST_P(PerfectTrees, CommitTheirBestBranch) {
  EngineOptions o = options();
  o.drafter = drafter_;
  auto core = make_core(model_, o);
  ASSERT_TRUE(core);
  for (RequestId id = 1; id <= 3; ++id)
    ASSERT_TRUE(core->add(id, make_request(2 * static_cast<int64_t>(id), 12, 33, kTokens)).ok());
  std::vector<TokenEvent> events;
  int64_t steps = 0;
  for (; !core->idle(); ++steps) core->step(events);
  EXPECT_EQ(std::ssize(events), 3 * 33);
  EXPECT_EQ(steps, 1 + 32 / 4);  // three drafted tokens and one more
}

INSTANTIATE_TEST_SUITE_P(Heads, PerfectTrees,
                         ::testing::Values("medusa:k=3,tokens=10,model={}/medusa",
                                           "eagle:k=3,tokens=9,model={}/eagle_feature",
                                           "eagle:k=3,tokens=9,tree=static,model={}/eagle_token",
                                           "eagle:k=3,tokens=9,model={}/eagle3"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

// What does not go together is refused, and the message says what to do.
TEST(TrainedDraft, Refusals) {
  const auto model = load_for(kHeads + "target", *select_isa());
  const auto other = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model && other);
  const auto error_of = [](const std::shared_ptr<const LanguageModel>& of, const EngineOptions& o) {
    const auto made = EngineCore::create(of, o);
    return made.ok() ? std::string() : made.error().message;
  };
  EngineOptions o = options();
  o.drafter = "medusa";
  EXPECT_EQ(error_of(model, o), "drafter medusa: model: must name the folder of a checkpoint, model=PATH");
  o.drafter = "eagle:tree=round,model=x";
  EXPECT_EQ(error_of(model, o), "drafter eagle: tree: must be dynamic or static, got round");
  o.drafter = fmt::format("medusa:k=4,model={}medusa", kHeads);
  EXPECT_EQ(error_of(model, o), fmt::format("drafter medusa: k: 4 heads wanted, {}medusa has 3", kHeads));
  o.drafter = fmt::format("kangaroo:exit=9,model={}kangaroo", kHeads);
  EXPECT_EQ(error_of(model, o), "drafter kangaroo: exit: 9 layers before the adapter; the model has 7");
  o.drafter = fmt::format("pass:k=5,model={}pass", kHeads);
  EXPECT_EQ(error_of(model, o), fmt::format("drafter pass: k: 5 look-ahead tokens wanted, {}pass has 4", kHeads));
  o.drafter = fmt::format("pass:k=1,model={}kangaroo", kHeads);
  EXPECT_NE(error_of(model, o).find("tensor lookahead.weight is missing"), std::string::npos) << error_of(model, o);
  o.drafter = fmt::format("pass:k=1,model={}pass", kHeads);
  EXPECT_NE(error_of(other, o).find("this one has width 32"), std::string::npos) << error_of(other, o);
  o.drafter = fmt::format("longspec:model={}eagle", kHeads);
  EXPECT_NE(error_of(model, o).find("drafter longspec: "), std::string::npos) << error_of(model, o);
  o.drafter = "mtp";
  EXPECT_NE(error_of(model, o).find("drafter mtp: "), std::string::npos) << error_of(model, o);
  o.drafter = fmt::format("medusa:k=2,model={}medusa", kHeads);
  EXPECT_NE(error_of(other, o).find("this one has width 32"), std::string::npos) << error_of(other, o);
  o.kv_format = "kivi";
  EXPECT_NE(error_of(model, o).find("encodes whole blocks"), std::string::npos) << error_of(model, o);
  o.kv_format = "f16";
  o.evictor = "streamingllm:sinks=2,window=14";
  o.drafter = fmt::format("medusa:k=2,top=1,model={}medusa", kHeads);
  EXPECT_EQ(error_of(model, o),
            "evictor streamingllm:sinks=2,window=14 does not go with drafter medusa: it needs the hidden states of all "
            "tokens; "
            "use ngram, or a draft model");
}

TEST(TrainedDraft, OneBudgetCountsTheirMemory) {
  auto model = LanguageModel::load(kHeads + "target", {.threads = 1, .context = 128, .memory = int64_t{1} << 30});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto bytes = [&](const char* name) {
    for (const MemoryAccount& one : (*model)->parts().accounts->list())
      if (one.name == name) return one.bytes;
    return int64_t{0};
  };
  EngineOptions o = options();
  o.drafter = fmt::format("eagle:model={}eagle3", kHeads);
  {
    auto core = make_core(*model, o);
    ASSERT_TRUE(core);
    EXPECT_GT(bytes("draft model"), 0);
    EXPECT_GT(bytes("drafter"), 0);
    int64_t token = 2 * 16 + 2 * 2 * 8;  // features, and the layer's key and value, in f16
    for (const KvLayer& layer : (*model)->parts().model->kv_layers()) token += 2 * layer.kv_heads * layer.head_dim * 2;
    EXPECT_EQ(bytes("KV"), 4096 * token);
  }
  EXPECT_EQ(bytes("drafter"), 0);
  EXPECT_EQ(bytes("draft model"), 0);
  EXPECT_EQ(bytes("KV"), 0);
}

}  // namespace
}  // namespace millrace
