// Drafters that read the model's hidden states: answers are those of plain decoding, and the hidden states and the keys
// of the drafting layer are right whatever happens to the blocks. A model whose next token is a fixed function of its
// last one shows the latter: heads and layers that know the function are always right, unless the state that they read
// is another token's.
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "properties/draft_runs.h"

namespace millrace {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const std::string kHeads = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/draft_heads/";

// ---- random checkpoints ----------------------------------------------------------------------------------------------
class TrainedDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(model_); }
  std::shared_ptr<const LanguageModel> model_ = load_for(kHeads + "target", *select_isa());
};

TEST_P(TrainedDrafts, EventsAreThoseOfPlainDecoding) {
  int64_t drafted_tokens = 0, preempted = 0;
  for (uint64_t round = 1; round <= 2; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      SCOPED_TRACE(fmt::format("round {}, {}", round, name));
      const DraftOutcome plain = run_requests(*make_core(model_, o), requests, 1);
      EngineOptions drafting = o;
      drafting.drafter = fmt::format(fmt::runtime(GetParam()), kHeads);
      drafting.draft_length = round == 2 ? "auto" : "fixed";
      auto core = make_core(model_, drafting);
      ASSERT_TRUE(core);
      const DraftOutcome drafted = run_requests(*core, requests, 1);
      EXPECT_EQ(drafted.emitted, plain.emitted);
      drafted_tokens += drafted.stats.drafted_tokens;
      preempted += drafted.stats.preemptions;
      if (HasFailure()) return;
    }
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

INSTANTIATE_TEST_SUITE_P(Heads, TrainedDrafts,
                         ::testing::Values("medusa:k=3,tokens=6,model={}medusa", "medusa:k=2,top=1,model={}medusa",
                                           "eagle:k=3,tokens=6,top=2,model={}eagle", "eagle:k=3,top=1,model={}eagle",
                                           "eagle:k=4,tokens=7,top=3,tree=static,model={}eagle",
                                           "eagle:k=3,tokens=6,top=2,model={}eagle3"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

// ---- checkpoints that know the model ---------------------------------------------------------------------------------
constexpr int64_t kTokens = 32;  // and the width: every token is a direction of its own

// next(t): no power of it that a branch has is the identity.
int64_t next_token(int64_t t, int64_t times = 1) {
  for (; times > 0; --times) t = (5 * t + 7) % kTokens;
  return t;
}

using Rows = std::vector<std::vector<float>>;
Rows zeros(int64_t rows, int64_t cols) {
  return Rows(static_cast<size_t>(rows), std::vector<float>(static_cast<size_t>(cols)));
}
// Row next(t) has `value` in column t.
Rows moves(float value, int64_t times) {
  Rows rows = zeros(kTokens, kTokens);
  for (int64_t t = 0; t < kTokens; ++t)
    rows[static_cast<size_t>(next_token(t, times))][static_cast<size_t>(t)] = value;
  return rows;
}
Rows beside(const std::vector<Rows>& parts) {
  Rows all = parts[0];
  for (size_t p = 1; p < parts.size(); ++p)
    for (size_t r = 0; r < all.size(); ++r) all[r].insert(all[r].end(), parts[p][r].begin(), parts[p][r].end());
  return all;
}
Rows ones() { return {std::vector<float>(kTokens, 1.0f)}; }

// A Hugging Face folder.
class Checkpoint {
 public:
  Checkpoint(const fs::path& folder, int64_t layers, const std::string& arch = "LlamaForCausalLM") : folder_(folder) {
    config_ = {{"architectures", {arch}},
               {"model_type", "llama"},
               {"hidden_size", kTokens},
               {"intermediate_size", kTokens},
               {"num_attention_heads", 2},
               {"num_key_value_heads", 1},
               {"num_hidden_layers", layers},
               {"max_position_embeddings", 256},
               {"rms_norm_eps", 1e-6},
               {"vocab_size", kTokens}};
  }
  nlohmann::ordered_json& config() { return config_; }
  void add(const std::string& name, const Rows& rows, bool vector = false) {
    nlohmann::ordered_json shape = {std::ssize(rows), std::ssize(rows[0])};
    if (vector) shape = {std::ssize(rows[0])};
    std::string bytes;
    for (const auto& row : rows) bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * 4);
    add_bytes(name, "F32", shape, bytes);
  }
  void add_bytes(const std::string& name, const char* type, const nlohmann::ordered_json& shape,
                 const std::string& bytes) {
    header_[name] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  // A layer that adds nothing.
  void add_layer(const std::string& prefix, int64_t read) {
    const int64_t kv = kTokens / 2;
    add(prefix + "self_attn.q_proj.weight", zeros(kTokens, read));
    add(prefix + "self_attn.k_proj.weight", zeros(kv, read));
    add(prefix + "self_attn.v_proj.weight", zeros(kv, read));
    add(prefix + "self_attn.o_proj.weight", zeros(kTokens, kTokens));
    add(prefix + "post_attention_layernorm.weight", ones(), true);
  }
  void add_mlp(const std::string& prefix, const Rows& gate, const Rows& down) {
    add(prefix + "mlp.gate_proj.weight", gate);
    add(prefix + "mlp.up_proj.weight", gate);
    add(prefix + "mlp.down_proj.weight", down);
  }
  std::string write() {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config_.dump();
    std::string text = header_.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text << data_;
    return folder_.string();
  }

 private:
  fs::path folder_;
  nlohmann::ordered_json config_, header_;
  std::string data_;
};

// Embeddings are the unit vectors, layers add nothing, and the head moves on.
std::string write_target(const fs::path& folder) {
  Checkpoint c(folder, 7);
  c.add("model.embed_tokens.weight", moves(1, 0));
  for (int i = 0; i < 7; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    c.add(prefix + "input_layernorm.weight", ones(), true);
    c.add_layer(prefix, kTokens);
    c.add_mlp(prefix, zeros(kTokens, kTokens), zeros(kTokens, kTokens));
  }
  c.add("model.norm.weight", ones(), true);
  c.add("lm_head.weight", moves(8, 1));
  return c.write();
}

// Head i knows the token i + 2 places behind.
std::string write_medusa(const fs::path& folder) {
  Checkpoint c(folder, 1);
  c.config() = {{"medusa_num_heads", 3}, {"medusa_num_layers", 1}};
  for (int i = 0; i < 3; ++i) {
    c.add(fmt::format("medusa_head.{}.0.linear.weight", i), zeros(kTokens, kTokens));
    c.add(fmt::format("medusa_head.{}.0.linear.bias", i), zeros(1, kTokens), true);
    c.add(fmt::format("medusa_head.{}.1.weight", i), moves(8, i + 2));
  }
  return c.write();
}

// From the token alone, or from the feature before it alone.
std::string write_eagle(const fs::path& folder, bool from_feature) {
  Checkpoint c(folder, 1);
  c.add("fc.weight", from_feature ? beside({zeros(kTokens, kTokens), moves(1, 1)})
                                  : beside({moves(5.657f, 0), zeros(kTokens, kTokens)}));
  c.add_layer("layers.0.", kTokens);
  c.add_mlp("layers.0.", zeros(kTokens, kTokens), zeros(kTokens, kTokens));
  return c.write();
}

// The MLP moves the feature on; the head's vocabulary is the other way round.
std::string write_eagle3(const fs::path& folder) {
  Checkpoint c(folder, 1, "LlamaForCausalLMEagle3");
  c.config()["draft_vocab_size"] = kTokens;
  c.add("fc.weight", beside({zeros(kTokens, kTokens), moves(1, 0), zeros(kTokens, kTokens)}));
  c.add("midlayer.hidden_norm.weight", ones(), true);
  c.add("midlayer.input_layernorm.weight", ones(), true);
  c.add_layer("midlayer.", 2 * kTokens);
  const float in = std::sqrt(static_cast<float>(kTokens)), out = in * in / (1 + std::exp(-in));  // silu(in) * in
  Rows down = moves(1 / out, 1);
  for (size_t t = 0; t < down.size(); ++t) down[t][t] -= 1 / out;
  c.add_mlp("midlayer.", moves(1, 0), down);
  c.add("norm.weight", ones(), true);
  Rows head = moves(8, 1);
  std::ranges::reverse(head);
  c.add("lm_head.weight", head);
  std::string offsets;
  for (int64_t i = 0; i < kTokens; ++i) {
    const int64_t offset = kTokens - 1 - 2 * i;
    offsets.append(reinterpret_cast<const char*>(&offset), 8);
  }
  c.add_bytes("d2t", "I64", {kTokens}, offsets);
  return c.write();
}

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

INSTANTIATE_TEST_SUITE_P(Heads, PerfectDrafts,
                         ::testing::Values("medusa:k=3,top=1,model={}/medusa",
                                           "eagle:k=4,top=1,model={}/eagle_token",
                                           "eagle:k=4,top=1,model={}/eagle_feature",
                                           "eagle:k=4,top=1,model={}/eagle3"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

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
  const auto mamba = load_for(golden_model("mamba"), *select_isa());
  ASSERT_TRUE(model && other && mamba);
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
  o.drafter = fmt::format("medusa:k=2,model={}medusa", kHeads);
  EXPECT_NE(error_of(other, o).find("this one has width 32"), std::string::npos) << error_of(other, o);
  EXPECT_NE(error_of(mamba, o).find("recurrent layers"), std::string::npos) << error_of(mamba, o);
  o.kv_format = "kivi";
  EXPECT_NE(error_of(model, o).find("encodes whole blocks"), std::string::npos) << error_of(model, o);
  o.kv_format = "f16";
  o.evictor = "streamingllm:sinks=2,window=14";
  o.drafter = fmt::format("medusa:k=2,top=1,model={}medusa", kHeads);
  EXPECT_EQ(error_of(model, o),
            "evictor: drafters that read hidden states need those of all tokens; use ngram, or a draft model");
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
