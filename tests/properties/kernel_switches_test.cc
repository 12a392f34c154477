// The family `kernel`: with any lossless choice every stream has the bits of the engine without one.
#include <gtest/gtest.h>

#include "models/forward_switches.h"
#include "models/model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions with_kernels(std::vector<std::string> kernels, EngineOptions o) {
  o.kernels = std::move(kernels);
  return o;
}

// Streams of several lengths at once.
std::map<RequestId, Shown> run_some(const std::shared_ptr<const LanguageModel>& model, EngineOptions options) {
  options.context = 64;
  auto core = make_core(model, options);
  for (int64_t i = 0; i < 4; ++i) {
    Request request = make_request(i, 5 + 15 * i, 8, model->info().vocab);
    EXPECT_TRUE(core->add(static_cast<RequestId>(i), std::move(request)).ok());
  }
  return run_all(*core, model->info().vocab);
}

void expect_same_bits(const std::map<RequestId, Shown>& a, const std::map<RequestId, Shown>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, shown] : a) {
    EXPECT_EQ(shown.tokens.size(), 8u);
    EXPECT_TRUE(shown.same_bits(b.at(id))) << id;
  }
}

class FusedKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(FusedKernels, SameBitsAsPartsOneByOne) {
  const auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto& model = *loaded;
  const auto fused = run_some(model, options(2));
  for (const char* parts : {"none", "rows+heads+bias", "qkv+gate_up+activation+experts"})
    expect_same_bits(run_some(model, with_kernels({std::string("fused:parts=") + parts}, options(2))), fused);
}

// Biases and LayerNorm; norms of heads and experts; norms behind blocks; a mixer without heads; a latent; two mixers.
INSTANTIATE_TEST_SUITE_P(Models, FusedKernels,
                         ::testing::Values("gpt2", "qwen2", "qwen3moe", "gemma3", "olmo2", "mamba", "deepseek2_groups",
                                           "falcon_h1", "qwen35", "gemma4", "gemma4_e", "gemma3n"));

class Gemv : public ::testing::TestWithParam<const char*> {};

TEST_P(Gemv, SameBitsAsTokensTogether) {
  const auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 64});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto together = run_some(*loaded, options(2));
  for (const char* kernel : {"gemv:tokens=2", "gemv:tokens=4096"})
    expect_same_bits(run_some(*loaded, with_kernels({kernel}, options(2))), together);
}

// Matrices of floats, with biases and of experts, and of a latent.
INSTANTIATE_TEST_SUITE_P(Models, Gemv, ::testing::Values("llama3", "gpt2", "qwen3moe", "deepseek2_groups"));

// Streams behind a common text of more than a partition, which the first one has left in the prefix cache; one more has
// only the beginning of it, and one has none.
std::map<RequestId, Shown> run_prefixed(const std::shared_ptr<const LanguageModel>& model, EngineOptions options) {
  const int64_t vocab = model->info().vocab;
  options.context = 640;
  auto core = make_core(model, options);
  const Request first = make_request(40, 560, 8, vocab);
  EXPECT_TRUE(core->add(100, Request(first)).ok());
  auto shown = run_all(*core, vocab);
  for (int64_t i = 0; i < 6; ++i) {
    Request request = make_request(i, 600 - 3 * i, 8, vocab);
    const int64_t shared = i == 4 ? 300 : i == 5 ? 0 : 560;
    std::copy_n(first.prompt.begin(), shared, request.prompt.begin());
    EXPECT_TRUE(core->add(static_cast<RequestId>(i), std::move(request)).ok());
  }
  shown.merge(run_all(*core, vocab));
  EXPECT_GE(shown[1].cached, 512);  // in whole blocks
  return shown;
}

TEST(SharedPrefix, SameBitsAsEveryStreamAlone) {
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (int threads : {1, 3}) {
    EngineOptions plain = options(threads);
    plain.max_streams = 8;
    const auto alone = run_prefixed(*model, plain);
    ASSERT_EQ(alone.size(), 7u);
    expect_same_bits(run_prefixed(*model, with_kernels({"shared_prefix"}, plain)), alone);
    const auto unified = run_prefixed(*model, with_kernels({"unified_max"}, plain));
    expect_same_bits(run_prefixed(*model, with_kernels({"shared_prefix", "unified_max"}, plain)), unified);
    EXPECT_FALSE(unified.at(0).same_bits(alone.at(0)));  // partitions join without scaling
  }
}

// Encoded blocks are read once, too.
TEST(SharedPrefix, SameBitsAsEveryStreamAloneWithACodec) {
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const char* format : {"kivi:bits=2", "kivi:bits=4", "flexgen_kv", "atom_kv", "quarot_kv:bits=3",
                             "turboquant:bits=3", "kvquant:bits=2", "kvquant:bits=4,outliers=0"}) {
    SCOPED_TRACE(format);
    EngineOptions plain = options(3);
    plain.max_streams = 8;
    plain.kv_format = format;
    plain.block_tokens = 32;
    const auto alone = run_prefixed(*model, plain);
    ASSERT_EQ(alone.size(), 7u);
    expect_same_bits(run_prefixed(*model, with_kernels({"shared_prefix"}, plain)), alone);
  }
}

// The answers differ from the default's in their last bits, but depend on nothing else either.
TEST(UnifiedMax, SameBitsForAnyThreadsAndChunks) {
  const auto model = load_for(golden_model("llama3"), detect_isa());
  ASSERT_TRUE(model);
  const auto shown = run_some(model, with_kernels({"unified_max"}, options(1)));
  expect_same_bits(run_some(model, with_kernels({"unified_max"}, options(3, 7, 8))), shown);
}

// Logits after each of some texts, which run as one batch.
std::vector<float> logits_with(const LanguageModel& model, const std::vector<std::string>& kernels) {
  const auto& parts = model.parts();
  ForwardLimits limits{64, 8, 64};
  limits.switches = make_forward_switches(kernels).value();
  auto runner = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(2),
                                     .layout = {find_format("f32"), 16, parts.model->kv_layers()},
                                     .blocks = 8,
                                     .limits = limits})
                    .value();
  std::vector<float> out;
  for (int64_t count : {24, 1, 2}) {
    std::vector<BlockId> blocks;
    for (int i = 0; i < 2; ++i) blocks.push_back(*runner->kv().allocate());
    runner->start();
    runner->begin(blocks, 0);
    for (int64_t t = 0; t < count; ++t) runner->add(static_cast<TokenId>(7 * t % 50 + 3), t, t + 1 == count);
    runner->forward();
    out.insert(out.end(), runner->logits(), runner->logits(1));
  }
  return out;
}

TEST(PaddedExperts, PaddingChangesNoBitAndDroppingDoes) {
  for (const char* name : {"mixtral", "qwen2moe", "qwen3moe"}) {
    const auto model = load_for(golden_model(name), detect_isa());
    ASSERT_TRUE(model);
    const auto grouped = logits_with(*model, {});
    EXPECT_EQ(logits_with(*model, {"padded_experts:capacity=64"}), grouped) << name;
    EXPECT_NE(logits_with(*model, {"padded_experts:capacity=0.3"}), grouped) << name;
  }
}

TEST(PaddedExperts, NoEngineTakesThem) {
  const auto model = load_for(golden_model("mixtral"), detect_isa());
  ASSERT_TRUE(model);
  const auto refused = EngineCore::create(model, with_kernels({"padded_experts"}, options()));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "kernel padded_experts: answers would depend on the other requests of a batch; only bench and perplexity "
            "take it");
}

TEST(PaddedExperts, ModelsWithoutExpertsRefuseThem) {
  const auto model = load_for(golden_model("llama3"), detect_isa());
  ASSERT_TRUE(model);
  ForwardLimits limits{64, 8, 64};
  limits.switches = make_forward_switches(std::vector<std::string>{"padded_experts"}).value();
  const auto refused = ModelRunner::create(*model->parts().model, model->parts().kernels,
                                           {.threads = std::make_shared<ThreadPool>(1),
                                            .layout = {find_format("f32"), 16, model->parts().model->kv_layers()},
                                            .blocks = 8,
                                            .limits = limits});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "kernel padded_experts: the model has no mixture of experts");
}

TEST(PaddedExperts, RowsOfAnExpert) {
  EXPECT_EQ(padded_rows(1.25, 512, 8), 80);
  EXPECT_EQ(padded_rows(1, 2, 8), 1);
  EXPECT_EQ(padded_rows(64, 6, 4), 6);
}

TEST(KernelSwitches, ErrorsAreExact) {
  const auto refusal = [](const std::string& text) { return make_forward_switches(std::vector{text}).error().message; };
  EXPECT_EQ(refusal("fast").substr(0, 32), "kernel: unknown 'fast'; availabl");
  EXPECT_EQ(refusal("fused:part=none"), "kernel fused: part: no such option; known: parts");
  EXPECT_EQ(refusal("by_shape:file=/none"), "kernel by_shape: no file /none");
  EXPECT_EQ(refusal("fused:parts=rows+kv"),
            "kernel fused: parts: unknown 'kv'; all, none, or some of rows, qkv, heads, gate_up, bias, activation, "
            "experts, with + between");
  EXPECT_EQ(refusal("fused:parts=rows+"),
            "kernel fused: parts: unknown ''; all, none, or some of rows, qkv, heads, gate_up, bias, activation, "
            "experts, with + between");
}

TEST(KernelSwitches, PartsAreThoseNamed) {
  const auto parts = [](const std::string& text) {
    return make_forward_switches(std::vector{"fused:parts=" + text})->fused;
  };
  EXPECT_TRUE(parts("all").rows && parts("all").experts);
  EXPECT_FALSE(parts("none").rows || parts("none").qkv || parts("none").bias);
  EXPECT_TRUE(parts("qkv+bias").qkv && parts("qkv+bias").bias);
  EXPECT_FALSE(parts("qkv+bias").rows || parts("qkv+bias").gate_up);
}

}  // namespace
}  // namespace millrace
