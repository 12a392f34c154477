// Models with recurrent states: the same request gives the same bits whatever the chunks, threads, batch mates,
// preemptions, answers, beams and drafts, and every state is free again at the end.
#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "evaluate/embedder.h"
#include "evaluate/scorer.h"
#include "model_runner.h"
#include "properties/costed_executor.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct RecurrentCase {
  std::string model;
  Isa isa;
};

class Recurrent : public ::testing::TestWithParam<RecurrentCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), GetParam().isa);
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    alone_ = run_one(options(), request(1));
    ASSERT_EQ(alone_.tokens.size(), 12u);
  }
  Request request(int64_t seed, int64_t prompt = 70) const { return make_request(seed, prompt, 12, vocab_); }
  Shown run_one(const EngineOptions& o, Request r) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, std::move(r)).ok());
    Shown shown = run_all(*core, vocab_)[1];
    EXPECT_EQ(core->stats().states_free, core->stats().states);
    return shown;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  Shown alone_;
};

TEST_P(Recurrent, BitsDoNotDependOnThreads) {
  for (int threads : {2, 3}) EXPECT_TRUE(run_one(options(threads), request(1)).same_bits(alone_)) << threads;
}

TEST_P(Recurrent, BitsDoNotDependOnPrefillChunks) {
  for (int64_t chunk : {1, 2, 7, 64}) {
    EngineOptions o = options(1, chunk);
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_)) << chunk;
  }
}

TEST_P(Recurrent, BitsDoNotDependOnBlockSizeOrPool) {
  for (int64_t block : {1, 8, 64}) EXPECT_TRUE(run_one(options(2, 512, block), request(1)).same_bits(alone_)) << block;
  EngineOptions o = options();
  o.kv_pool = "virtual";
  EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_));
}

TEST_P(Recurrent, BitsDoNotDependOnBatchMates) {
  for (int64_t mates = 1; mates <= 7; mates += 2) {
    auto core = make_core(model_, options(2, 48));
    for (int64_t i = 0; i < mates; ++i) {
      if (i == mates / 2) {
        ASSERT_TRUE(core->add(1, request(1)).ok());
      }
      ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), request(50 + i, 3 + 14 * i)).ok());
    }
    EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone_)) << mates;
    EXPECT_EQ(core->stats().states_free, core->stats().states);
  }
}

// A stream in a slot that another one has used, whose prompt begins alike: nothing of the earlier state is left.
TEST_P(Recurrent, ReusedSlotsBeginEmpty) {
  EngineOptions o = options();
  o.max_streams = 1;
  o.prefix_cache = false;
  auto core = make_core(model_, o);
  EXPECT_EQ(core->stats().states, 1);
  EXPECT_EQ(core->stats().state_cache.slots, 0);
  for (RequestId id : {1, 2, 3}) {
    ASSERT_TRUE(core->add(id, request(id == 2 ? 7 : 1)).ok());
    Shown shown = run_all(*core, vocab_)[id];
    if (id != 2) {
      EXPECT_TRUE(shown.same_bits(alone_)) << id;
    }
    EXPECT_EQ(shown.cached, 0);
  }
  EXPECT_EQ(core->stats().prefix.queries, 0);
}

TEST_P(Recurrent, BitsDoNotDependOnPreemptions) {
  for (int64_t swap_tokens : {0, 150, 4096}) {
    EngineOptions o = options(2, 40, 8);
    o.kv_tokens = 160;  // of six streams with up to 82 tokens
    o.max_streams = 4;
    o.kv_tier = memory_tier(swap_tokens);
    o.policy = "fcfs:reserve=prompt";
    auto executor = CpuExecutor::create(model_, o);
    ASSERT_TRUE(executor.ok());
    // Swaps are the cheaper way wherever there is room.
    auto made = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{1, 1e-3, 1}), o);
    ASSERT_TRUE(made.ok());
    auto core = std::move(*made);
    std::map<RequestId, Request> requests;
    for (RequestId id = 1; id <= 6; ++id)
      requests[id] = make_request(static_cast<int64_t>(id), 20 + 3 * static_cast<int64_t>(id), 40, vocab_);
    for (const auto& [id, one] : requests) ASSERT_TRUE(core->add(id, one).ok());
    auto shown = run_all(*core, vocab_);
    EXPECT_GT(core->stats().preemptions, 0);
    EXPECT_EQ(core->stats().swapped_out_tokens > 0, swap_tokens > 0);
    EXPECT_EQ(core->stats().states_free, core->stats().states);
    for (const auto& [id, one] : requests) EXPECT_TRUE(shown[id].same_bits(run_one(options(), one))) << id;
  }
}

TEST_P(Recurrent, BitsDoNotDependOnDrafts) {
  for (const char* drafter : {"ngram:min=1,k=3", "ngram:min=1,k=8"}) {
    for (int64_t seed : {2, 4}) {  // greedy
      Request repeats = make_request(seed, 6, 100, vocab_);
      repeats.prompt.assign(6, static_cast<TokenId>(seed));
      const Shown plain = run_one(options(), repeats);
      EngineOptions o = options(2);
      o.drafter = drafter;
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, repeats).ok());
      ASSERT_TRUE(core->add(2, request(3)).ok());
      auto shown = run_all(*core, vocab_);
      EXPECT_EQ(shown[1].tokens, plain.tokens);
      EXPECT_EQ(shown[2].tokens, run_one(options(), request(3)).tokens);
      EXPECT_GT(core->stats().drafted_tokens, 0);
      EXPECT_EQ(core->stats().states_free, core->stats().states);
    }
  }
}

TEST_P(Recurrent, AnswersAndBeams) {
  auto core = make_core(model_, options(2));
  Request answers = request(1, 20);
  answers.n = 3;
  ASSERT_TRUE(core->add(1, answers).ok());
  Request beams = make_request(2, 20, 10, vocab_);
  beams.beams = 3;
  ASSERT_TRUE(core->add(2, beams).ok());
  std::map<std::pair<RequestId, int64_t>, std::vector<TokenId>> together, alone;
  const auto run = [](EngineCore& engine, auto& out) {
    std::vector<TokenEvent> events;
    while (!engine.idle()) {
      events.clear();
      engine.step(events);
      for (const auto& event : events) {
        EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
        if (event.token >= 0) out[{event.request, event.answer}].push_back(event.token);
      }
      EXPECT_TRUE(engine.check_blocks().ok());
    }
    EXPECT_EQ(engine.stats().states_free, engine.stats().states);
  };
  run(*core, together);
  for (const auto& [id, one] : {std::pair{RequestId{1}, answers}, {RequestId{2}, beams}}) {
    auto other = make_core(model_, options(1, 16));
    ASSERT_TRUE(other->add(id, one).ok());
    run(*other, alone);
  }
  EXPECT_EQ(together, alone);
}

std::vector<RecurrentCase> recurrent_cases() {
  std::vector<RecurrentCase> all;
  for (const char* model : {"mamba", "mamba_odd", "falcon_h1", "falcon_h1_norm", "qwen3next", "qwen35", "qwen35moe"})
    for (Isa isa : isa_levels()) all.push_back({model, isa});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Recurrent, ::testing::ValuesIn(recurrent_cases()),
                         [](const auto& one) { return one.param.model + "_" + isa_label(one.param.isa); });

// ---- evaluation ----
TEST(RecurrentEvaluation, ScoresDoNotDependOnTheBatch) {
  auto model = load_for(golden_model("mamba_odd"), *select_isa());
  ASSERT_TRUE(model);
  const std::vector<TokenId> text = make_request(5, 100, 1, model->info().vocab).prompt;
  const auto scores = [&](int64_t batch_tokens) {
    std::vector<float> out;
    auto scorer =
        Scorer::create(model, {.threads = 2, .context = 24, .batch_tokens = batch_tokens, .kv_format = "f32"});
    EXPECT_TRUE(scorer.ok());
    const auto windows = strided_windows(100, 24, 9);
    const auto sink = [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + (*scorer)->vocab());
      return {};
    };
    EXPECT_TRUE((*scorer)->run(text, windows, -1, sink).ok());
    return out;
  };
  const std::vector<float> all = scores(512);
  ASSERT_FALSE(all.empty());
  for (int64_t batch : {24, 31, 60}) EXPECT_EQ(scores(batch), all) << batch;
}

TEST(RecurrentEvaluation, EmbeddingsDoNotDependOnTheBatch) {
  auto model = load_for(golden_model("mamba_odd"), *select_isa());
  ASSERT_TRUE(model);
  std::vector<std::vector<TokenId>> texts;
  for (int64_t i = 0; i < 40; ++i) texts.push_back(make_request(i, 1 + i % 9, 1, model->info().vocab).prompt);
  const auto embed = [&](int64_t batch_tokens) {
    std::vector<std::vector<float>> out;
    auto embedder =
        Embedder::create(model, {.threads = 2, .context = 16, .batch_tokens = batch_tokens, .kv_format = "f32"});
    EXPECT_TRUE(embedder.ok());
    const auto sink = [&](size_t text, std::vector<float> values) -> Result<void> {
      EXPECT_EQ(text, out.size());
      out.push_back(std::move(values));
      return {};
    };
    EXPECT_TRUE((*embedder)->run(texts, Pooling::mean, sink).ok());
    return out;
  };
  const auto all = embed(512);  // more texts than states
  ASSERT_EQ(all.size(), texts.size());
  for (int64_t batch : {1, 7, 30}) EXPECT_EQ(embed(batch), all) << batch;
}

// ---- memory, options, files ----
TEST(RecurrentMemory, StatesAreCounted) {
  auto model = load_for(golden_model("mamba"), *select_isa());
  ASSERT_TRUE(model);
  // Three layers: 64 channels of 3 earlier inputs and 16 values.
  constexpr int64_t kState = 3 * 64 * (3 + 16) * 4;
  EXPECT_EQ((KvLayout{find_format("f32"), 16, model->parts().model->kv_layers()}.state_bytes()), kState);
  for (const auto& [streams, resident, swap, drafter, states] :
       {std::tuple{8, 0, 0, "", 8}, {8, 12, 0, "", 12}, {8, 0, 64, "", 16}, {8, 0, 64, "ngram:k=5", 16 + 8 * 5}}) {
    EngineOptions o = options();
    o.max_streams = streams;
    o.resident_streams = resident;
    o.kv_tier = memory_tier(swap);
    o.drafter = drafter;
    auto core = make_core(model, o);
    EXPECT_EQ(core->stats().states, states);
    EXPECT_EQ(core->stats().states_free, states);
    const int64_t copies = 2 * std::max(streams, resident);
    EXPECT_EQ(core->stats().state_cache.slots, copies);
    EXPECT_EQ(core->stats().state_cache.slot_bytes, kState);
    EXPECT_EQ(core->stats().kv_bytes, (states + copies) * kState) << "blocks have no bytes";
    o.prefix_cache = false;
    EXPECT_EQ(make_core(model, o)->stats().kv_bytes, states * kState);
  }
  EngineOptions chosen = options();
  chosen.max_streams = 8;
  chosen.drafter = "ngram:k=20";
  chosen.draft_length = "auto";
  EXPECT_EQ(make_core(model, chosen)->stats().states, 8 + 20) << "one draft of any length, or two tokens a stream";
  chosen.drafter = "ngram:k=5";
  EXPECT_EQ(make_core(model, chosen)->stats().states, 8 + 2 * 8);
}

// Layers of attention and a state space: a stream holds blocks and a slot.
TEST(RecurrentMemory, BlocksAreBesideTheStates) {
  auto model = load_for(golden_model("falcon_h1"), *select_isa());
  ASSERT_TRUE(model);
  // Two layers: 64 channels of 3 earlier inputs, 48 of 8 values; one KV head of 32 dims.
  constexpr int64_t kState = 2 * (64 * 3 + 48 * 8) * 4, kToken = 2 * 2 * 32 * 2;
  const KvLayout layout{find_format("f16"), 16, model->parts().model->kv_layers()};
  EXPECT_EQ(layout.state_bytes(), kState);
  EXPECT_EQ(layout.bytes_per_token(), kToken);
  auto core = make_core(model, options());
  const EngineStats stats = core->stats();
  EXPECT_EQ(stats.kv_bytes, (stats.states + stats.state_cache.slots) * kState + stats.kv_blocks * 16 * kToken);
}

// Layers of attention take turns with gated delta nets: blocks have rows of the former alone.
TEST(RecurrentMemory, LayersOfAttentionAloneHaveBlocks) {
  auto model = load_for(golden_model("qwen3next"), *select_isa());
  ASSERT_TRUE(model);
  // Three layers: 64 channels of 3 earlier inputs, 4 matrices of 8 x 8; one layer: two KV heads of 16 dims.
  constexpr int64_t kState = 3 * (64 * 3 + 4 * 8 * 8) * 4, kToken = 2 * 2 * 16 * 4;
  const KvLayout layout{find_format("f32"), 16, model->parts().model->kv_layers()};
  EXPECT_EQ(layout.state_bytes(), kState);
  EXPECT_EQ(layout.bytes_per_token(), kToken);
}

TEST(RecurrentMemory, TheBudgetHoldsThem) {
  auto model = LanguageModel::load(golden_model("mamba"), {.threads = 1, .context = 128, .memory = int64_t{1} << 30});
  ASSERT_TRUE(model.ok());
  EngineOptions o = options();
  o.kv_tokens = 0;
  auto core = make_core(*model, o);
  ASSERT_TRUE(core);
  EXPECT_EQ(core->stats().kv_blocks, 8 * 128 / 16) << "every stream may grow to the whole context";
  const auto holds = [](const std::string& name) { return name == "recurrent states" || name == "state cache"; };
  int64_t held = 0;
  for (const MemoryUse& use : core->stats().memory) held += holds(use.name) ? use.bytes : 0;
  for (const MemoryAccount& use : (*model)->parts().accounts->list()) held += holds(use.name) ? use.bytes : 0;
  EXPECT_EQ(held, core->stats().kv_bytes);
}

// The files of a golden model, of which a test replaces tensors or configuration.
ModelFiles damaged(const std::string& kind) {
  auto files = open_model_files(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/mamba" + kind);
  EXPECT_TRUE(files.ok());
  files->path = "m";
  return std::move(*files);
}

std::string load_error(ModelFiles files) {
  auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
  return runner.ok() ? "" : runner.error().message;
}

StoredTensor& tensor_of(ModelFiles& files, const std::string& name) {
  return files.tensors[files.tensor_index.at(name)];
}

TEST(RecurrentFiles, MissingTensorsAndWrongShapesAreNamed) {
  for (const char* name : {"blk.1.ssm_in.weight", "blk.1.ssm_conv1d.weight", "blk.1.ssm_conv1d.bias",
                           "blk.1.ssm_x.weight", "blk.1.ssm_dt.weight", "blk.1.ssm_dt.bias", "blk.1.ssm_a",
                           "blk.1.ssm_d", "blk.1.ssm_out.weight", "blk.1.attn_norm.weight", "output_norm.weight"}) {
    ModelFiles files = damaged("/model.gguf");
    files.tensor_index.erase(name);
    EXPECT_EQ(load_error(std::move(files)), "m: tensor " + std::string(name) + " is missing");
  }
  ModelFiles turned = damaged("/model.gguf");
  StoredTensor& a = tensor_of(turned, "blk.0.ssm_a");
  std::swap(a.tensor.dims[0], a.tensor.dims[1]);
  const std::string at = std::to_string(a.offset);
  EXPECT_EQ(load_error(std::move(turned)),
            "m: tensor blk.0.ssm_a at offset " + at + " has shape [16, 64], the model needs [64, 16]");
  ModelFiles folder = damaged("");
  folder.tensor_index.erase("backbone.layers.2.mixer.A_log");
  EXPECT_EQ(load_error(std::move(folder)), "m: tensor backbone.layers.2.mixer.A_log is missing");
}

TEST(RecurrentFiles, ConfigurationsAreChecked) {
  const auto with = [](const std::string& kind, const std::string& key, const nlohmann::ordered_json& value) {
    ModelFiles files = damaged(kind);
    nlohmann::ordered_json config = *files.config;
    config[key] = value;
    files.config = std::make_shared<const nlohmann::ordered_json>(config);
    return load_error(std::move(files));
  };
  EXPECT_EQ(with("/model.gguf", "mamba.ssm.state_size", 0),
            "m: mamba.ssm.state_size must be a whole number between 1 and 4096, is 0");
  EXPECT_EQ(with("/model.gguf", "mamba.ssm.dt_b_c_rms", true), "m: norms of the step sizes, B and C (Falcon Mamba)");
  EXPECT_EQ(with("/model.gguf", "mamba.ssm.inner_size", nullptr), "m: mamba.ssm.inner_size is missing");
  EXPECT_EQ(with("", "use_bias", true), "m/config.json: biases of in_proj and out_proj");
  EXPECT_EQ(with("", "hidden_act", "gelu"), "m/config.json: hidden_act 'gelu'");
  EXPECT_EQ(with("", "conv_kernel", 65), "m/config.json: conv_kernel must be a whole number between 1 and 64, is 65");
}

}  // namespace
}  // namespace millrace
