// The kernel switch `npu`: prompts as int8 products of fixed chunks. A stream has the same bits in any batch, with any
// chunks and threads; outliers restore what one scale of a tensor loses.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "evaluate/npu_calibration.h"
#include "models/forward_switches.h"
#include "models/model_runner.h"
#include "models/npu/calibrate.h"
#include "models/npu/products.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

std::shared_ptr<const LanguageModel> npu_model(const std::string& path) {
  const auto loaded = LanguageModel::load(path, {.threads = 1, .context = 128});
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return *loaded;
}

std::map<RequestId, Shown> run_npu(const std::shared_ptr<const LanguageModel>& model, EngineOptions o,
                                   const std::string& kernel, int64_t only = -1) {
  if (!kernel.empty()) o.kernels = {kernel};
  auto core = make_core(model, o);
  for (int64_t i = 0; i < 4; ++i) {
    if (only >= 0 && i != only) continue;
    EXPECT_TRUE(core->add(static_cast<RequestId>(i), make_request(i, 5 + 25 * i, 8, model->info().vocab)).ok());
  }
  return run_all(*core, model->info().vocab);
}

class NpuBits : public ::testing::TestWithParam<const char*> {};

TEST_P(NpuBits, AStreamHasTheSameBitsInAnyBatch) {
  const auto model = npu_model(golden_model(GetParam()));
  const std::string kernel = "npu:chunk=16,pruned=0.5,channels=0.1";
  const auto together = run_npu(model, options(1), kernel);
  ASSERT_EQ(together.size(), 4u);
  for (int64_t only = 0; only < 4; ++only) {
    const auto alone = run_npu(model, options(2), kernel, only);
    EXPECT_TRUE(alone.at(static_cast<RequestId>(only)).same_bits(together.at(static_cast<RequestId>(only)))) << only;
  }
  // Steps of 7 tokens: chunks of the device are filled in several passes.
  const auto chunked = run_npu(model, options(3, 7, 8), kernel);
  for (const auto& [id, shown] : together) EXPECT_TRUE(shown.same_bits(chunked.at(id))) << id;
  const auto plain = run_npu(model, options(1), "");
  EXPECT_FALSE(together.at(3).same_bits(plain.at(3)));
  // The device on threads of its own, in both orders.
  for (const char* apart : {",threads=2", ",threads=1,order=in_order"}) {
    const auto groups = run_npu(model, options(2), kernel + apart);
    for (const auto& [id, shown] : together) EXPECT_TRUE(shown.same_bits(groups.at(id))) << id << apart;
  }
  // A larger chunk is more padding and nothing else.
  const auto padded = run_npu(model, options(1), "npu:chunk=64,pruned=0.5,channels=0.1");
  for (const auto& [id, shown] : together) EXPECT_TRUE(shown.same_bits(padded.at(id))) << id;
}

// Grouped heads; biases; norms of heads; norms behind blocks; gated layers of two kinds; shared keys; two mixers.
INSTANTIATE_TEST_SUITE_P(Models, NpuBits,
                         ::testing::Values("llama3", "qwen2", "qwen3", "gemma3", "qwen35", "gemma3n", "falcon_h1"));

TEST(Npu, APromptFromThePrefixCacheHasTheSameBits) {
  const auto model = npu_model(golden_model("llama3"));
  EngineOptions o = options(2);
  o.kernels = {"npu:chunk=16,pruned=0.5"};
  auto core = make_core(model, o);
  Request first = make_request(3, 70, 16, model->info().vocab);
  EXPECT_TRUE(core->add(0, Request(first)).ok());
  auto shown = run_all(*core, model->info().vocab);
  // The next turn: the first prompt, its answer, and some more. The answer was computed as answers are.
  Request next = first;
  next.prompt.insert(next.prompt.end(), shown[0].tokens.begin(), shown[0].tokens.end());
  next.prompt.push_back(5);
  EXPECT_TRUE(core->add(1, Request(next)).ok());
  shown.merge(run_all(*core, model->info().vocab));
  EXPECT_GE(shown[1].cached, 64);
  auto cold = make_core(model, o);
  EXPECT_TRUE(cold->add(1, Request(next)).ok());
  EXPECT_TRUE(run_all(*cold, model->info().vocab).at(1).same_bits(shown.at(1)));
}

// Logits of all tokens of a text, without switches or with one.
struct NpuLogits {
  std::vector<float> values;
  NpuCounts counts;
};

NpuLogits npu_logits(const LanguageModel& model, const std::string& kernel, int64_t tokens = 96) {
  ForwardLimits limits{tokens, tokens, 128};
  if (!kernel.empty()) limits.switches = make_forward_switches(std::vector{kernel}).value();
  const auto& parts = model.parts();
  auto runner = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(2),
                                     .layout = {find_format("f32"), 16, parts.model->kv_layers()},
                                     .blocks = 8,
                                     .places = {},
                                     .limits = limits})
                    .value();
  std::vector<BlockId> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(*runner->kv().allocate());
  runner->start();
  runner->begin(blocks, 0);
  const int64_t vocab = parts.model->spec().vocab;
  for (int64_t t = 0; t < tokens; ++t) runner->add(make_request(1, tokens, 1, vocab).prompt[t], t, true);
  runner->forward();
  NpuLogits out{{runner->logits(), runner->logits(tokens)}, {}};
  if (runner->npu()) out.counts = runner->npu()->counts();
  return out;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& exact) {
  double error = 0, total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - exact[i], 2);
    total += std::pow(exact[i], 2);
  }
  return std::sqrt(error / total);
}

// A copy of a model in which a norm writes some channels `factor` times as large, and the matrices behind it multiply
// them by as much less. A power of two changes no product of floats.
class PlantedOutliers {
 public:
  explicit PlantedOutliers(float factor)
      : path_(std::filesystem::path(::testing::TempDir()) / ("planted_" + std::to_string(getpid()))) {
    const auto source = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama3";
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(source))
      if (entry.path().extension() != ".gguf")
        std::filesystem::copy_file(entry, path_ / entry.path().filename(),
                                   std::filesystem::copy_options::overwrite_existing);
    std::ifstream in(path_ / "model.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    in.close();
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), 8);
    header_ = nlohmann::ordered_json::parse(bytes_.substr(8, length));
    begin_ = 8 + length;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      plant(at + "input_layernorm", factor, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, at);
      plant(at + "post_attention_layernorm", factor, {"mlp.gate_proj", "mlp.up_proj"}, at);
    }
    std::ofstream(path_ / "model.safetensors", std::ios::binary) << bytes_;
  }
  ~PlantedOutliers() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }

 private:
  static constexpr int kPlanted[] = {9, 40};  // of 64 channels

  float* values_of(const std::string& name) {
    const auto& tensor = header_.at(name + ".weight");
    EXPECT_EQ(tensor.at("dtype"), "F32");
    return reinterpret_cast<float*>(bytes_.data() + begin_ + tensor.at("data_offsets")[0].get<size_t>());
  }

  void plant(const std::string& norm, float factor, const std::vector<std::string>& behind, const std::string& at) {
    for (const int channel : kPlanted) values_of(norm)[channel] *= factor;
    for (const std::string& name : behind) {
      float* const values = values_of(at + name);
      const auto rows = header_.at(at + name + ".weight").at("shape")[0].get<int64_t>();
      for (int64_t r = 0; r < rows; ++r)
        for (const int channel : kPlanted) values[r * 64 + channel] /= factor;
    }
  }

  std::filesystem::path path_;
  std::string bytes_;
  nlohmann::ordered_json header_;
  size_t begin_ = 0;
};

TEST(Npu, ShadowOutliersRestorePlantedChannels) {
  const std::string shadow = "npu:chunk=16,pruned=0,channels=0.04", plain = "npu:chunk=16,outliers=none";
  const auto original = npu_model(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3");
  const auto exact = npu_logits(*original, "");
  const double rounding = relative_error(npu_logits(*original, plain).values, exact.values);
  const PlantedOutliers planted(64);
  const auto model = npu_model(planted.path());
  ASSERT_LT(relative_error(npu_logits(*model, "").values, exact.values), 1e-6);  // the same model
  const NpuLogits with = npu_logits(*model, shadow);
  const double shadow_error = relative_error(with.values, exact.values);
  const double plain_error = relative_error(npu_logits(*model, plain).values, exact.values);
  RecordProperty("rounding", std::to_string(rounding));
  EXPECT_LT(rounding, 0.15);  // of a tiny model with random weights
  EXPECT_LT(shadow_error, 2 * rounding);
  EXPECT_GT(plain_error, 5 * shadow_error);
  EXPECT_GT(with.counts.outliers, 0);
}

// With every input's outliers and hardly any levels, nearly everything is computed in float.
TEST(Npu, ColdChannelsAreDecodedFromTheModel) {
  const auto model = npu_model(golden_model("llama3"));
  const auto exact = npu_logits(*model, "");
  NpuScales low =
      sample_npu_scales(*model->parts().model, model->parts().kernels, std::make_shared<ThreadPool>(1)).value();
  for (auto& [input, maxima] : low.maxima)
    for (float& value : maxima) value = 1e-3f;  // no channel is hot, and all inputs exceed their levels
  const auto path = std::filesystem::path(::testing::TempDir()) / ("npu_scales_" + std::to_string(getpid()));
  ASSERT_TRUE(write_npu_scales(path.string(), low, "llama3").ok());
  const NpuLogits cold = npu_logits(*model, "npu:chunk=32,pruned=0,scales=" + path.string());
  EXPECT_LT(relative_error(cold.values, exact.values), 0.01);
  EXPECT_EQ(cold.counts.cold, cold.counts.outliers);
  EXPECT_GT(cold.counts.cold, 1000);
  // Without outliers the same scales cut everything.
  const auto read = read_npu_scales(path.string());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->maxima, low.maxima);
  EXPECT_GT(relative_error(npu_logits(*model, "npu:outliers=none,scales=" + path.string()).values, exact.values), 0.5);
  std::filesystem::remove(path);
}

TEST(Npu, GraphsRunOnceAChunkAndRowsArePadded) {
  const auto model = npu_model(golden_model("llama3"));
  const NpuLogits whole = npu_logits(*model, "npu:chunk=32", 96), part = npu_logits(*model, "npu:chunk=32", 65);
  // Seven matrices of two layers, three chunks.
  EXPECT_EQ(whole.counts.runs, 7 * 2 * 3);
  EXPECT_EQ(whole.counts.padding, 0);
  EXPECT_EQ(part.counts.runs, 7 * 2 * 3);
  EXPECT_EQ(part.counts.padding, 7 * 2 * 31);
}

TEST(Npu, TheLeastImportantInputsHaveNoOutliers) {
  NpuScales scales;
  std::map<NpuInput, int64_t> columns;
  for (int32_t layer = 0; layer < 5; ++layer)
    for (const NpuSite site : {NpuSite::attention_in, NpuSite::mlp_out}) {
      const NpuInput input{layer, site};
      columns[input] = 100;
      scales.maxima[input].assign(100, 1);
      scales.maxima[input][17] = static_cast<float>(2 + 10 * layer + (site == NpuSite::mlp_out));
    }
  const auto inputs = npu_input_scales(columns, scales, {.pruned = 0.8, .channels = 0.01}).value();
  for (const auto& [input, scale] : inputs) {
    EXPECT_EQ(scale.shadow, input.layer == 4);
    EXPECT_FLOAT_EQ(scale.scale, (scale.shadow ? 1 : scales.maxima[input][17]) / 127);
    EXPECT_EQ(scale.hot, scale.shadow ? std::vector<int32_t>{17} : std::vector<int32_t>{});
    EXPECT_EQ(scale.importance, scales.maxima[input][17]);
  }
}

TEST(Npu, ErrorsNameWhatToDo) {
  const auto refusal = [](const std::string& text) { return make_forward_switches(std::vector{text}).error().message; };
  EXPECT_EQ(refusal("npu:chunk=40"), "kernel npu: chunk: must be a multiple of 16");
  EXPECT_EQ(refusal("npu:outliers=all"), "kernel npu: outliers: unknown 'all'; shadow or none");
  EXPECT_EQ(refusal("npu:order=any"), "kernel npu: order: unknown 'any'; out_of_order or in_order");
  EXPECT_EQ(refusal("npu:scales=/none"), "kernel npu: /none: cannot be read: No such file or directory");
  EXPECT_EQ(refusal("npu:scales=" + golden_model("llama3")).substr(0, 12), "kernel npu: ");
  const auto model = npu_model(golden_model("llama3"));
  const auto path = std::filesystem::path(::testing::TempDir()) / ("npu_other_" + std::to_string(getpid()));
  ASSERT_TRUE(write_npu_scales(path.string(), {.maxima = {{{0, NpuSite::mlp_in}, {1, 2}}}}, "other").ok());
  EngineOptions o = options();
  o.kernels = {"npu:scales=" + path.string()};
  const auto refused = EngineCore::create(model, o);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "kernel npu: layer 0, attn_in: " + path.string() +
                                         " does not have its 64 channels; run millrace npu-scales on this model");
  std::filesystem::remove(path);
}

// Every token of every window is observed, those of the last layer too.
TEST(Npu, ACalibrationSeesEveryTokenOfTheText) {
  const auto model = npu_model(golden_model("llama3"));
  const std::vector<TokenId> tokens = make_request(2, 96, 1, model->info().vocab).prompt;
  const NpuScales whole = calibrate_npu(*model, tokens, 48, 1).value();
  const NpuScales first = calibrate_npu(*model, std::span(tokens).first(48), 48, 2).value();
  const NpuScales second = calibrate_npu(*model, std::span(tokens).last(48), 48, 1).value();
  ASSERT_EQ(whole.maxima.size(), 8u);
  for (const auto& [input, maxima] : whole.maxima)
    for (size_t c = 0; c < maxima.size(); ++c) {
      EXPECT_EQ(maxima[c], std::max(first.maxima.at(input)[c], second.maxima.at(input)[c]));
      EXPECT_GT(maxima[c], 0);
    }
  EXPECT_FALSE(calibrate_npu(*model, std::span(tokens).first(40), 48, 1).ok());
}

}  // namespace
}  // namespace millrace
