// Predictors of neurons: the regression against a plain solution in double precision, and what a fit reports against
// the engine's own passes with the file that it writes.
#include "compress/neurons/neuron_fit.h"

#include <cmath>
#include <fstream>
#include <random>

#include "compress/neurons/low_rank_signs.h"
#include "compress/pruners/pruner_test.h"
#include "contains.h"
#include "evaluate/scorer.h"
#include "sampling/logprobs.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

// Samples whose signs depend on `latent` directions of the inputs.
LayerSamples planted_samples(int64_t tokens, int64_t width, int64_t hidden, int64_t latent) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> to_latent(static_cast<size_t>(latent * width)), to_hidden(static_cast<size_t>(hidden * latent));
  for (float& v : to_latent) v = normal(random);
  for (float& v : to_hidden) v = normal(random);
  LayerSamples out{.tokens = tokens};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) out.inputs.push_back(normal(random));
    const float* const x = out.inputs.data() + t * width;
    std::vector<float> z(static_cast<size_t>(latent));
    for (int64_t k = 0; k < latent; ++k)
      for (int64_t i = 0; i < width; ++i)
        z[static_cast<size_t>(k)] += to_latent[static_cast<size_t>(k * width + i)] * x[i];
    for (int64_t n = 0; n < hidden; ++n) {
      float g = -1.0f;  // fewer than half are active
      for (int64_t k = 0; k < latent; ++k)
        g += to_hidden[static_cast<size_t>(n * latent + k)] * z[static_cast<size_t>(k)];
      out.active.push_back(g > 0);
    }
  }
  return out;
}

NeuronProfile fitted(const LayerSamples& samples, int64_t width, int64_t hidden, int64_t rank, int threads) {
  ThreadPool pool(threads);
  NeuronProfile out;
  const auto done = fit_low_rank_signs(samples, samples.tokens, width, hidden, rank, 0.01,
                                       make_kernel_table(*select_isa()), pool, out);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return out;
}

double product_at(const NeuronProfile& profile, int64_t width, int64_t rank, int64_t n, int64_t i) {
  double sum = 0;
  for (int64_t k = 0; k < rank; ++k)
    sum += static_cast<double>(profile.b[static_cast<size_t>(n * rank + k)]) *
           static_cast<double>(profile.a[static_cast<size_t>(k * width + i)]);
  return sum;
}

TEST(LowRankSigns, OfFullRankIsTheRidgeRegression) {
  constexpr int64_t kWidth = 12, kHidden = 20, kTokens = 150;
  const LayerSamples samples = planted_samples(kTokens, kWidth, kHidden, 5);
  const NeuronProfile profile = fitted(samples, kWidth, kHidden, kWidth, 1);
  Square h(kWidth, std::vector<double>(kWidth));
  for (int64_t t = 0; t < kTokens; ++t)
    for (size_t i = 0; i < kWidth; ++i)
      for (size_t j = 0; j < kWidth; ++j)
        h[i][j] += static_cast<double>(samples.inputs[static_cast<size_t>(t) * kWidth + i]) *
                   static_cast<double>(samples.inputs[static_cast<size_t>(t) * kWidth + j]);
  double mean = 0;
  for (size_t i = 0; i < kWidth; ++i) mean += h[i][i] / kWidth;
  for (size_t i = 0; i < kWidth; ++i) h[i][i] += 0.01 * mean;
  const Square inverse = inverse_of(h);
  for (int64_t n = 0; n < kHidden; ++n) {
    double share = 0;
    for (int64_t t = 0; t < kTokens; ++t)
      share += samples.active[static_cast<size_t>(t * kHidden + n)] / double{kTokens};
    std::vector<double> xs(kWidth);
    for (int64_t t = 0; t < kTokens; ++t)
      for (size_t i = 0; i < kWidth; ++i)
        xs[i] += static_cast<double>(samples.inputs[static_cast<size_t>(t) * kWidth + i]) *
                 (samples.active[static_cast<size_t>(t * kHidden + n)] - share);
    for (size_t i = 0; i < kWidth; ++i) {
      double want = 0;
      for (size_t j = 0; j < kWidth; ++j) want += inverse[i][j] * xs[j];
      EXPECT_NEAR(product_at(profile, kWidth, kWidth, n, static_cast<int64_t>(i)), want, 1e-4);
    }
  }
}

// The share of the signs that `rank` explains: of a plant of two directions, two suffice and one does not.
TEST(LowRankSigns, FindsThePlantedDirections) {
  constexpr int64_t kWidth = 24, kHidden = 64, kTokens = 600;
  const LayerSamples samples = planted_samples(kTokens, kWidth, kHidden, 2);
  const auto squared_scores = [&](int64_t rank) {
    const NeuronProfile profile = fitted(samples, kWidth, kHidden, rank, 2);
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t n = 0; n < kHidden; ++n) {
        double score = 0;
        for (int64_t i = 0; i < kWidth; ++i)
          score += product_at(profile, kWidth, rank, n, i) *
                   static_cast<double>(samples.inputs[static_cast<size_t>(t * kWidth + i)]);
        sum += score * score;
      }
    return sum;
  };
  const double all = squared_scores(kWidth), two = squared_scores(2), one = squared_scores(1);
  EXPECT_GT(two, 0.85 * all);
  EXPECT_LT(one, 0.75 * all);
}

TEST(LowRankSigns, DoesNotDependOnThreads) {
  const LayerSamples samples = planted_samples(300, 96, 200, 9);
  const NeuronProfile one = fitted(samples, 96, 200, 16, 1), three = fitted(samples, 96, 200, 16, 3);
  EXPECT_EQ(one.a, three.a);
  EXPECT_EQ(one.b, three.b);
}

std::vector<TokenId> text_tokens(int64_t count) {
  std::mt19937_64 random(2);
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<TokenId>(3 + random() % 400));
  return out;
}

// A copy of a model: sources of weights write a packed cache next to it.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& path) {
    std::filesystem::copy_file(path, file_.path(), std::filesystem::copy_options::overwrite_existing);
  }
  ~ModelCopy() {
    std::error_code ignored;
    for (const char* end : {".millrace-packed", ".neurons"}) std::filesystem::remove(path() + end, ignored);
  }
  std::string path() const { return file_.path(); }

 private:
  ScratchModel file_;
};

double text_loss(const std::string& path, const std::string& weights, const std::vector<TokenId>& tokens,
                 std::span<const ScoreWindow> windows) {
  auto model = LanguageModel::load(path, {.threads = 2, .context = 64, .weights = weights});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  auto scorer = Scorer::create(*model, {.threads = 2, .context = 64});
  EXPECT_TRUE(scorer.ok());
  double sum = 0;
  int64_t count = 0;
  const auto done = (*scorer)->run(tokens, windows, -1, [&](std::span<const ScoredRow> rows) {
    for (const ScoredRow& row : rows) {
      sum += log_sum_exp({row.logits, static_cast<size_t>((*scorer)->vocab())}) -
             static_cast<double>(row.logits[row.target]);
      ++count;
    }
    return Result<void>();
  });
  EXPECT_TRUE(done.ok());
  return sum / static_cast<double>(count);
}

// The losses that a fit reports are those of passes with the file: dense, exact and predicted.
TEST(NeuronFit, ReportsTheLossesOfPassesWithItsFile) {
  const ModelCopy copy(std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-lab-relu-2m.gguf");
  auto model = LanguageModel::load(copy.path(), {.threads = 2, .context = 64});
  ASSERT_TRUE(model.ok());
  const std::vector<TokenId> tokens = text_tokens(8 * 64);
  auto fit = fit_neurons(*model, tokens, {.threads = 2, .context = 64, .rank = 48, .recall = 0.9});
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  ASSERT_EQ(fit->layers.size(), 4u);
  for (const NeuronFitLayer& layer : fit->layers) {
    EXPECT_GT(layer.active, 0.0);
    EXPECT_LT(layer.active, 0.6);
    EXPECT_GT(layer.recall, layer.predicted + 0.1) << "better than chance";
    EXPECT_GT(layer.precision, layer.active);
  }
  EXPECT_GT(fit->predicted_loss, 0.0);
  EXPECT_NE(fit->predicted_loss, fit->loss);
  const std::string neurons = copy.path() + ".neurons";
  const LanguageModel::Parts& parts = (*model)->parts();
  ASSERT_TRUE(write_neuron_file(neurons, *parts.files, parts.model->spec(), fit->profiles, fit->tokens).ok());
  auto windows = chunk_windows(std::ssize(tokens), 64);
  for (ScoreWindow& window : windows) window.first_scored = 1;
  const auto last = std::span(windows).subspan(6);
  EXPECT_EQ(text_loss(copy.path(), "resident", tokens, last), fit->loss);
  EXPECT_EQ(text_loss(copy.path(), "powerinfer:file=" + neurons, tokens, last), fit->loss);
  EXPECT_EQ(text_loss(copy.path(), "powerinfer:predictor=file,file=" + neurons, tokens, last), fit->predicted_loss);
  EXPECT_EQ(text_loss(copy.path(), "llm_in_flash:predictor=file,window=2,file=" + neurons, tokens, last),
            fit->predicted_loss);
}

TEST(NeuronFit, SaysWhatIsWrong) {
  const auto failure = [](const std::string& name, int64_t count, const NeuronFitOptions& options) {
    auto model = LanguageModel::load(golden_gguf(name), {.threads = 1, .context = 32});
    EXPECT_TRUE(model.ok());
    auto fit = fit_neurons(*model, std::vector<TokenId>(static_cast<size_t>(count), 5), options);
    EXPECT_FALSE(fit.ok());
    return fit.ok() ? "" : fit.error().message;
  };
  EXPECT_CONTAINS(failure("llama", 500, {.context = 32}), "millrace compress --pass relufy makes a model with ReLU");
  EXPECT_CONTAINS(failure("llama_relu", 500, {.context = 32, .rank = 33}),
                  "rank: 33 is more than the model's width, 32");
  EXPECT_CONTAINS(failure("llama_relu", 70, {.context = 32, .rank = 8}), "at least 4 are needed");
}

}  // namespace
}  // namespace millrace
