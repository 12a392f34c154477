// Models with latent attention: the KV cache holds one row per token and layer; the same request gives the same bits
// whatever the chunks, threads, batch mates, prefix reuse, preemptions, answers, beams, drafts and evictions; both
// layouts of the heads' matrices give the same bits; errors name what is wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "properties/costed_executor.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct LatentCase {
  std::string model;
  std::string kv_format;
  Isa isa;
};

class Latent : public ::testing::TestWithParam<LatentCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), GetParam().isa);
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    alone_ = run_one(options(), request(1));
    ASSERT_EQ(alone_.tokens.size(), 12u);
  }
  EngineOptions with_format(EngineOptions o) const {
    o.kv_format = GetParam().kv_format;
    return o;
  }
  Request request(int64_t seed, int64_t prompt = 70) const { return make_request(seed, prompt, 12, vocab_); }
  Shown run_one(const EngineOptions& o, Request r) const {
    auto core = make_core(model_, with_format(o));
    EXPECT_TRUE(core->add(1, std::move(r)).ok());
    return run_all(*core, vocab_)[1];
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  Shown alone_;
};

TEST_P(Latent, ThreadsChunksBlocksAndPoolsDoNotShow) {
  for (int threads : {2, 3}) EXPECT_TRUE(run_one(options(threads), request(1)).same_bits(alone_)) << threads;
  for (int64_t chunk : {1, 2, 7, 64}) {
    EngineOptions o = options(1, chunk);
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_)) << chunk;
  }
  for (int64_t block : {1, 8, 64}) EXPECT_TRUE(run_one(options(2, 512, block), request(1)).same_bits(alone_)) << block;
  EngineOptions o = options();
  o.kv_pool = "virtual";
  o.kv_tokens = 1 << 16;  // of blocks of whole pages
  EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_));
}

TEST_P(Latent, BatchMatesDoNotShow) {
  for (int64_t mates = 1; mates <= 7; mates += 2) {
    auto core = make_core(model_, with_format(options(2, 48)));
    for (int64_t i = 0; i < mates; ++i) {
      if (i == mates / 2) {
        ASSERT_TRUE(core->add(1, request(1)).ok());
      }
      ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), request(50 + i, 3 + 14 * i)).ok());
    }
    EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone_)) << mates;
  }
}

TEST_P(Latent, PrefixesAreReused) {
  auto core = make_core(model_, with_format(options()));
  for (RequestId id : {1, 2}) {
    ASSERT_TRUE(core->add(id, request(1)).ok());
    const Shown shown = run_all(*core, vocab_)[id];
    EXPECT_EQ(shown.cached, id == 1 ? 0 : 64);
    EXPECT_TRUE(shown.same_bits(alone_));
  }
}

TEST_P(Latent, PrefixesOfFilesAreThoseThatWereComputed) {
  const std::string path = ::testing::TempDir() + "latent_prefix_" + std::to_string(getpid());
  const EngineOptions o = with_format(options(2, 16, 4));
  auto first = make_core(model_, o), second = make_core(model_, o);
  ASSERT_TRUE(first->add(1, request(1)).ok());
  EXPECT_TRUE(run_all(*first, vocab_)[1].same_bits(alone_));
  const auto saved = first->save_prefix(request(1), path);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const auto loaded = second->load_prefix(request(1), path);
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(*loaded, 68);  // whole blocks of 70 tokens
  ASSERT_TRUE(second->add(2, request(1)).ok());
  const Shown shown = run_all(*second, vocab_)[2];
  EXPECT_EQ(shown.cached, 68);
  EXPECT_TRUE(shown.same_bits(alone_));
}

TEST_P(Latent, PreemptionsDoNotShow) {
  for (int64_t swap_tokens : {0, 4096}) {
    EngineOptions o = with_format(options(2, 40, 8));
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
    for (const auto& [id, one] : requests) EXPECT_TRUE(shown[id].same_bits(run_one(options(), one))) << id;
  }
}

TEST_P(Latent, DraftsDoNotShow) {
  for (const char* drafter : {"ngram:min=1,k=3", "ngram:min=1,k=8,branches=2"}) {
    Request repeats = make_request(2, 6, 100, vocab_);  // greedy
    repeats.prompt.assign(6, 2);
    EngineOptions o = with_format(options(2));
    o.drafter = drafter;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->add(1, repeats).ok());
    ASSERT_TRUE(core->add(2, request(3)).ok());
    auto shown = run_all(*core, vocab_);
    EXPECT_EQ(shown[1].tokens, run_one(options(), repeats).tokens) << drafter;
    EXPECT_EQ(shown[2].tokens, run_one(options(), request(3)).tokens) << drafter;
    EXPECT_GT(core->stats().drafted_tokens, 0);
  }
}

std::vector<LatentCase> latent_cases() {
  std::vector<LatentCase> all;
  for (Isa isa : isa_levels()) {
    for (const char* model : {"deepseek2", "deepseek2_groups", "deepseek3"}) all.push_back({model, "f16", isa});
    all.push_back({"deepseek2", "f32", isa});
    all.push_back({"deepseek2", "q8_0", isa});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Latent, ::testing::ValuesIn(latent_cases()), [](const auto& one) {
  return one.param.model + "_" + one.param.kv_format + "_" + isa_label(one.param.isa);
});

// ---- memory ----
TEST(LatentMemory, ATokenHasOneRowOfEachLayer) {
  auto model = load_for(golden_model("deepseek2"), *select_isa());
  ASSERT_TRUE(model);
  // 48 + 16 numbers in each of three layers, against 4 heads with keys of 40 and values of 20.
  for (const auto& [format, bytes] : {std::pair{"f32", 4 * 64}, {"f16", 2 * 64}, {"q8_0", 2 * 34}}) {
    const KvLayout layout{find_format(format), 16, model->parts().model->kv_layers()};
    EXPECT_EQ(layout.bytes_per_token(), 3 * bytes) << format;
    EngineOptions o = options();
    o.kv_format = format;
    auto core = make_core(model, o);
    EXPECT_EQ(core->stats().kv_bytes, o.kv_tokens * 3 * bytes) << format;
  }
}

// Of DeepSeek-V2-Lite: 27 layers of 576 numbers, against 16 heads with keys of 192 and values of 128.
TEST(LatentMemory, OfTheSizesOfV2Lite) {
  const KvLayer latent{.kv_heads = 1, .head_dim = 576, .values_in_keys = true};
  const KvLayout layout{find_format("f16"), 16, std::vector<KvLayer>(27, latent)};
  EXPECT_EQ(layout.bytes_per_token(), 27 * 2 * 576);
  auto pool = KvPool::create(layout, 8);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), 8 * 16 * 27 * 2 * 576);
  EXPECT_EQ(pool->values(3, 2, 0), pool->keys(3, 2, 0));
}

TEST(LatentMemory, TheBudgetHoldsTheRows) {
  const int64_t budget = program_memory() + (int64_t{64} << 20);  // a program with sanitizers is large
  auto model = LanguageModel::load(golden_model("deepseek2"), {.threads = 1, .context = 128, .memory = budget});
  ASSERT_TRUE(model.ok());
  EngineOptions o = options();
  o.kv_tokens = 0;
  auto core = make_core(*model, o);
  ASSERT_TRUE(core);
  const int64_t block = 16 * 3 * 2 * 64;
  EXPECT_EQ(core->stats().kv_bytes, core->stats().kv_blocks * block);
}

// Moves and copies of rows: of the one array that there is.
TEST(LatentMemory, BlocksAreCopiedAndCompacted) {
  auto pool = KvPool::create({find_format("f32"), 4, {{.kv_heads = 1, .head_dim = 6, .values_in_keys = true}}}, 4);
  ASSERT_TRUE(pool.ok());
  const std::vector<BlockId> table = {2, 0};
  const auto row = [&](int64_t slot) {
    return reinterpret_cast<float*>(pool->keys(0, table[static_cast<size_t>(slot / 4)], 0)) + slot % 4 * 6;
  };
  for (int64_t slot = 0; slot < 8; ++slot) std::fill_n(row(slot), 6, static_cast<float>(slot));
  const std::vector<int32_t> kept = {0, 2, 3, 5, 6, 7};
  pool->compact(table, kept);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(row(i)[5], static_cast<float>(kept[static_cast<size_t>(i)])) << i;
  pool->copy(2, 3);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(reinterpret_cast<const float*>(pool->values(0, 3, 0))[i * 6 + 1],
              static_cast<float>(kept[static_cast<size_t>(i)]));
}

// ---- files ----
std::vector<float> latent_logits(const std::string& path) {
  auto runner = TestRunner::load(path, {});
  EXPECT_TRUE(runner.ok()) << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits(make_request(3, 50, 1, (*runner)->model().spec().vocab).prompt)
                     : std::vector<float>();
}

// A GGUF file with the heads' matrices in two stacks, one of them transposed, against a folder with one matrix.
TEST(LatentFiles, BothLayoutsOfTheHeadsGiveTheSameBits) {
  for (const char* name : {"deepseek2", "deepseek3"}) {
    const std::string folder = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name;
    const std::vector<float> stacks = latent_logits(folder + "/model.gguf"), one = latent_logits(folder);
    ASSERT_FALSE(stacks.empty());
    EXPECT_EQ(stacks, one) << name;
  }
}

// A matrix whose transpose is stored in blocks is packed as the f16 matrix of the same numbers.
TEST(LatentFiles, TransposedBlocksArePackedAsF16) {
  const KernelTable table = make_kernel_table(*select_isa());
  ThreadPool pool(2);
  const int64_t rows = 96, cols = 40;  // of the packed matrix: 40 stored rows of 96 values
  for (const char* name : {"q8_0", "q4_0"}) {
    const Format& stored = *find_format(name);
    std::vector<uint8_t> bytes(static_cast<size_t>(cols * stored.row_bytes(rows)));
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(philox_uniform(7, 1, i)) - 0.5f;
    stored.encode(values.data(), bytes.data(), rows * cols);
    stored.decode(bytes.data(), values.data(), rows * cols);
    std::vector<float> turned(values.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        turned[static_cast<size_t>(r * cols + c)] = values[static_cast<size_t>(c * rows + r)];
    std::vector<uint8_t> halves(turned.size() * 2);
    find_format("f16")->encode(turned.data(), halves.data(), rows * cols);
    Weight plain{.name = "plain", .format = find_format("f16"), .rows = rows, .cols = cols, .data = halves.data()};
    Weight transposed{.name = "transposed", .format = find_format("f16"), .rows = rows, .cols = cols};
    transposed.data = bytes.data();
    transposed.column_format = &stored;
    transposed.column_stride = stored.row_bytes(rows);
    ASSERT_TRUE(pack_weight(plain, table, pool).ok());
    ASSERT_TRUE(pack_weight(transposed, table, pool).ok());
    ASSERT_EQ(plain.packed.bytes(), transposed.packed.bytes());
    EXPECT_EQ(std::memcmp(plain.packed.data(), transposed.packed.data(), static_cast<size_t>(plain.packed.bytes())), 0)
        << name;
  }
}

// The files of a golden model, of which a test replaces tensors or configuration.
ModelFiles damaged_latent(const std::string& kind) {
  auto files = open_model_files(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + kind);
  EXPECT_TRUE(files.ok());
  files->path = "m";
  return std::move(*files);
}

std::string latent_load_error(ModelFiles files) {
  auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
  return runner.ok() ? "" : runner.error().message;
}

TEST(LatentFiles, MissingTensorsAreNamed) {
  for (const char* name : {"blk.1.attn_q_a.weight", "blk.1.attn_q_a_norm.weight", "blk.1.attn_q_b.weight",
                           "blk.1.attn_kv_a_mqa.weight", "blk.1.attn_kv_a_norm.weight", "blk.1.attn_v_b.weight",
                           "blk.1.attn_output.weight", "blk.1.ffn_gate_inp.weight", "blk.1.ffn_up_shexp.weight"}) {
    ModelFiles files = damaged_latent("deepseek3/model.gguf");
    files.tensor_index.erase(name);
    EXPECT_EQ(latent_load_error(std::move(files)), "m: tensor " + std::string(name) + " is missing");
  }
  ModelFiles files = damaged_latent("deepseek3/model.gguf");
  files.tensor_index.erase("blk.1.attn_k_b.weight");
  EXPECT_EQ(latent_load_error(std::move(files)), "m: tensor blk.1.attn_kv_b.weight is missing");
}

std::string latent_error(const std::string& kind, const std::string& key, const nlohmann::ordered_json& value) {
  ModelFiles files = damaged_latent(kind);
  auto config = std::make_shared<nlohmann::ordered_json>(*files.config);
  if (value.is_null())
    config->erase(key);
  else
    (*config)[key] = value;
  files.config = std::move(config);
  return latent_load_error(std::move(files));
}

TEST(LatentFiles, SizesAndRulesAreChecked) {
  const auto gguf = [](const std::string& key, const nlohmann::ordered_json& value) {
    return latent_error("deepseek3/model.gguf", "deepseek2." + key, value);
  };
  EXPECT_EQ(gguf("attention.kv_lora_rank", nullptr), "m: deepseek2.attention.kv_lora_rank is missing");
  EXPECT_EQ(gguf("rope.dimension_count", 5),
            "m: latent attention of 3 heads, a latent of 37 values, keys of 14 + 5 and values of 11 dims");
  EXPECT_EQ(gguf("attention.key_length_mla", 6),
            "m: latent attention of 3 heads, a latent of 37 values, keys of 0 + 6 and values of 11 dims");
  EXPECT_EQ(gguf("attention.head_count", 1 << 20), "m: 1048576 heads of 43 dims");
  EXPECT_EQ(gguf("expert_group_count", 5), "m: 4 experts of 16, in 2 of 5 groups");
  EXPECT_EQ(gguf("expert_gating_func", 3), "m: expert_gating_func 3");
  EXPECT_EQ(gguf("rope.scaling.type", "linear"), "m: rope scaling 'linear'");
  EXPECT_EQ(gguf("attention.temperature_scale", 0.1), "m: scores whose scale depends on the position");
  const auto folder = [](const std::string& key, const nlohmann::ordered_json& value) {
    return latent_error("deepseek3", key, value);
  };
  EXPECT_EQ(folder("topk_method", "random"), "m/config.json: experts selected by 'random' of 'sigmoid'");
  EXPECT_EQ(folder("attention_bias", true), "m/config.json: biases of latent attention");
  EXPECT_EQ(folder("rope_interleave", false), "m/config.json: latent attention that rotates halves");
  EXPECT_EQ(folder("topk_group", 1), "");
  EXPECT_EQ(folder("num_experts_per_tok", 9), "m/config.json: 9 experts of 16, in 2 of 4 groups");
}

// ---- what does not combine ----
TEST(LatentRefusals, NameTheReason) {
  auto model = load_for(golden_model("deepseek2"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.kv_format = "kivi";
  auto core = EngineCore::create(model, o);
  ASSERT_FALSE(core.ok());
  EXPECT_EQ(core.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      core.error().message,
      "KV format kivi does not go with this model: it has latent attention, whose values are parts of its keys; use "
      "f16");
}

// ---- evictors ----
// A stream of an evictor: nothing around it shows, and what is dropped is gone.
TEST(LatentEvictors, NothingAroundAStreamShows) {
  auto model = load_for(golden_model("deepseek2"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  const auto run = [&](EngineOptions o, const char* evictor, int mates) {
    o.evictor = evictor;
    auto core = make_core(model, o);
    for (int i = 0; i < mates; ++i)
      EXPECT_TRUE(core->add(static_cast<RequestId>(10 + i), make_request(10 + i, 9 + 20 * i, 20, vocab)).ok());
    EXPECT_TRUE(core->add(1, make_request(1, 50, 40, vocab)).ok());
    return run_all(*core, vocab)[1];
  };
  const Shown plain = run(options(), "", 0);
  for (const char* evictor :
       {"streamingllm:sinks=2,window=20,slack=4", "h2o:budget=24,slack=4", "key_norm:budget=24,slack=4"}) {
    const Shown alone = run(options(), evictor, 0);
    ASSERT_EQ(alone.tokens.size(), 40u) << evictor;
    EXPECT_FALSE(alone.same_bits(plain)) << evictor;
    EXPECT_TRUE(run(options(2, 30, 4), evictor, 3).same_bits(alone)) << evictor;
    EXPECT_TRUE(run(options(3, 512, 64), evictor, 1).same_bits(alone)) << evictor;
  }
}

}  // namespace
}  // namespace millrace
