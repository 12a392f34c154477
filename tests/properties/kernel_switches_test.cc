// The family `kernel`: with any lossless choice every stream has the bits of the engine without one.
#include <gtest/gtest.h>

#include "models/forward_switches.h"
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

// Biases and LayerNorm; norms of heads and experts; norms behind blocks; a mixer without heads; a latent.
INSTANTIATE_TEST_SUITE_P(Models, FusedKernels,
                         ::testing::Values("gpt2", "qwen2", "qwen3moe", "gemma3", "olmo2", "mamba",
                                           "deepseek2_groups"));

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
  EXPECT_EQ(shown[1].cached, 560);
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
    expect_same_bits(run_prefixed(*model, with_kernels({"shared_prefix", "unified_max"}, plain)),
                     run_prefixed(*model, with_kernels({"unified_max"}, plain)));
  }
}

TEST(KernelSwitches, ErrorsAreExact) {
  const auto refusal = [](const std::string& text) { return make_forward_switches(std::vector{text}).error().message; };
  EXPECT_EQ(refusal("fast").substr(0, 32), "kernel: unknown 'fast'; availabl");
  EXPECT_EQ(refusal("fused:part=none"), "kernel fused: part: no such option; known: parts");
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
