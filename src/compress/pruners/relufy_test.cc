// relufy: the output is the input with another activation, as a plain definition of the MLP in double precision
// computes it, and it can be computed by neuron.
#include <cmath>

#include "compress/neurons/neuron_fit.h"
#include "contains.h"
#include "model_runner.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

std::string relufied(const std::string& model, const std::string& out, const std::string& pass) {
  auto done = compress_model(short_compression(model, out, pass));
  return done.ok() ? "" : done.error().message;
}

// The inputs of a matrix of layer 0, row by row.
class TappedInput final : public ForwardObserver {
 public:
  explicit TappedInput(LinearKind kind) : kind_(kind) {}
  bool taps(const LinearId& id) const override { return id.layer == 0 && id.kind == kind_; }
  void input(const LinearInput& input) override { rows.assign(input.x, input.x + input.tokens * input.weight.cols); }
  std::vector<float> rows;

 private:
  LinearKind kind_;
};

std::vector<float> values_of_tensor(const ModelFiles& files, const std::string& name) {
  const StoredTensor* const stored = files.find(name);
  std::vector<float> out;
  if (!stored) return out;
  out.resize(static_cast<size_t>(stored->tensor.values()));
  stored->tensor.format->decode(stored->tensor.data, out.data(), std::ssize(out));
  return out;
}

// The input of the down matrix is max(0, Wg x + bg) (Wu x + bu), or max(0, Wu x + bu) without a gate.
TEST(Relufy, TheMlpHasTheShiftedRelu) {
  for (const std::string model : {"llama", "gpt2"}) {
    for (const std::string pass : {"relufy", "relufy:shift=0.05"}) {
      if (model == "gpt2" && pass != "relufy") continue;  // it has biases already
      const ScratchModel out;
      ASSERT_EQ(relufied(golden_gguf(model), out.path(), pass), "");
      auto runner = TestRunner::load(out.path(), {});
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      const ArchSpec& spec = (*runner)->model().spec();
      EXPECT_EQ(spec.activation, HiddenActivation::relu);
      TappedInput x(LinearKind::up), inner(LinearKind::down);
      (*runner)->runner().hooks().add(x);
      (*runner)->runner().hooks().add(inner);
      (*runner)->logits({5, 17, 40, 3, 99, 21, 64});
      auto files = open_model_files(out.path());
      ASSERT_TRUE(files.ok());
      const std::vector<float> gate = values_of_tensor(*files, "blk.0.ffn_gate.weight"),
                               up = values_of_tensor(*files, "blk.0.ffn_up.weight"),
                               gate_bias = values_of_tensor(*files, "blk.0.ffn_gate.bias"),
                               up_bias = values_of_tensor(*files, "blk.0.ffn_up.bias");
      EXPECT_EQ(gate_bias.empty(), pass == "relufy");
      const auto width = static_cast<size_t>(spec.width);
      const size_t hidden = up.size() / width, tokens = x.rows.size() / width;
      ASSERT_EQ(inner.rows.size(), tokens * hidden);
      size_t zeros = 0;
      for (size_t t = 0; t < tokens; ++t)
        for (size_t n = 0; n < hidden; ++n) {
          double u = up_bias.empty() ? 0 : up_bias[n], g = gate_bias.empty() ? 0 : gate_bias[n];
          for (size_t i = 0; i < width; ++i) {
            u += static_cast<double>(up[n * width + i]) * static_cast<double>(x.rows[t * width + i]);
            if (!gate.empty())
              g += static_cast<double>(gate[n * width + i]) * static_cast<double>(x.rows[t * width + i]);
          }
          const double want = gate.empty() ? std::max(0.0, u) : std::max(0.0, g) * u;
          EXPECT_NEAR(static_cast<double>(inner.rows[t * hidden + n]), want, 1e-4 * (1 + std::abs(want)));
          zeros += inner.rows[t * hidden + n] == 0.0f;
        }
      EXPECT_GT(zeros, tokens * hidden / 4);
    }
  }
}

// MLPs without gates, and with biases, give the same bits by neuron.
TEST(Relufy, TheOutputCanBeComputedByNeuron) {
  if (make_kernel_table(*select_isa()).find_matmul(find_format("f32"))->row_tile == 1) GTEST_SKIP() << "other order";
  for (const auto& [model, pass] : {std::pair("llama", "relufy:shift=0.02"), {"gpt2", "relufy"}, {"qwen3", "relufy"}}) {
    const ScratchModel out;
    ASSERT_EQ(relufied(golden_gguf(model), out.path(), pass), "");
    auto plain = LanguageModel::load(out.path(), {.threads = 1, .context = 32});
    ASSERT_TRUE(plain.ok());
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < 8 * 32; ++i) tokens.push_back((i * 31 + i / 7) % 90);
    auto fit = fit_neurons(*plain, tokens, {.threads = 1, .context = 32, .rank = 8});
    ASSERT_TRUE(fit.ok()) << fit.error().message;
    const std::string neurons = out.path() + ".neurons";
    const LanguageModel::Parts& parts = (*plain)->parts();
    ASSERT_TRUE(write_neuron_file(neurons, *parts.files, parts.model->spec(), fit->profiles, fit->tokens).ok());
    std::vector<std::vector<float>> logits;
    for (const std::string& weights :
         {std::string("resident"), "powerinfer:file=" + neurons, "llm_in_flash:window=1,file=" + neurons}) {
      auto loaded = LanguageModel::load(out.path(), {.threads = 1, .context = 32, .weights = weights});
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      const LanguageModel::Parts& own = (*loaded)->parts();
      KvLayout layout{find_format("f32"), 16, own.model->kv_layers()};
      auto runner = ModelRunner::create(*own.model, own.kernels,
                                        {.threads = std::make_shared<ThreadPool>(1),
                                         .layout = std::move(layout),
                                         .blocks = 4,
                                         .limits = {32, 32, 32}});
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      const std::vector<BlockId> blocks = {*(*runner)->kv().allocate()};
      std::vector<float>& to = logits.emplace_back();
      for (int64_t first : {0, 5}) {  // a prompt, then one token
        (*runner)->start();
        (*runner)->begin(blocks, first);
        for (int64_t i = 0; i < (first == 0 ? 5 : 1); ++i)
          (*runner)->add(tokens[static_cast<size_t>(first + i)], first + i, true);
        (*runner)->forward();
        ASSERT_TRUE((*runner)->take_failure().ok());
        to.insert(to.end(), (*runner)->logits(), (*runner)->logits((*runner)->outputs()));
      }
    }
    EXPECT_EQ(logits[1], logits[0]) << model;
    EXPECT_EQ(logits[2], logits[0]) << model;
    std::filesystem::remove(neurons);
    std::filesystem::remove(out.path() + ".millrace-packed");
  }
}

TEST(Relufy, SaysWhatIsWrong) {
  const ScratchModel out;
  EXPECT_CONTAINS(relufied(golden_gguf("mixtral"), out.path(), "relufy"),
                  "--pass relufy: takes models with dense MLPs");
  EXPECT_CONTAINS(relufied(golden_gguf("llama_relu"), out.path(), "relufy"),
                  "--pass relufy: takes models with dense MLPs");
  EXPECT_CONTAINS(relufied(golden_gguf("gpt2"), out.path(), "relufy:shift=1"), "has a bias already");
}

}  // namespace
}  // namespace millrace
