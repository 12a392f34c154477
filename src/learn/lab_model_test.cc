// The model's gradient against differences of its loss, its loops against plain sums, and a run against a resumed one.
#include "learn/lab_model.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "learn/lab_optimizer.h"
#include "learn/lab_trainer.h"

namespace millrace {
namespace {

ArchSpec tiny(HiddenActivation activation = HiddenActivation::silu, int64_t experts = 0, int64_t width = 64) {
  ArchSpec spec;
  spec.vocab = 64;
  spec.context = 512;
  spec.width = width;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.activation = activation;
  spec.moe.experts = experts;
  spec.hidden = spec.moe.hidden = 96;
  complete_llama(spec, 2, 50000);
  return spec;
}

ArchSpec wide_heads() { return tiny(HiddenActivation::silu, 0, 128); }  // of 64

LabBatch random_batch(uint64_t seed, const std::vector<int64_t>& lengths) {
  std::mt19937_64 random(seed);
  LabBatch batch;
  for (int64_t length : lengths) {
    batch.starts.push_back(batch.tokens());
    for (int64_t i = 0; i < length; ++i) {
      batch.ids.push_back(static_cast<TokenId>(random() % 64));
      batch.targets.push_back(static_cast<TokenId>(random() % 64));
      batch.weights.push_back(static_cast<float>(random() % 3));
    }
  }
  return batch;
}

double mean_loss(LabPass& pass, const LabBatch& batch) {
  const LabLoss loss = pass.run(batch, false);
  return loss.loss / loss.weight;
}

std::vector<ArchSpec> gradient_specs() {
  return {tiny(), tiny(HiddenActivation::relu), tiny(HiddenActivation::silu, 2), wide_heads()};
}

class LabGradient : public ::testing::TestWithParam<size_t> {};

// Along the gradient of each tensor the loss must rise by its squared norm. With two experts, both used, the choice has
// no jumps and the auxiliary loss no gradient.
template <typename Factor>
void expect_gradient_of_the_loss(const ArchSpec& spec, const TrainingKernelsOf<Factor>& kernels, const LabBatch& batch,
                                 double change, double tolerance) {
  LabModel model(spec, 3);
  ThreadPool pool(2);
  LabPass pass(model, pool, kernels);
  // A sharper model: small gradients would be lost in the rounding.
  for (const LabTensor& tensor : model.tensors())
    if (tensor.name == "embedding")
      for (int64_t i = 0; i < tensor.rows * tensor.columns; ++i)
        model.weights()[static_cast<size_t>(tensor.offset + i)] *= 20;
  pass.run(batch, true);
  const std::vector<float> gradient = model.gradient(), weights = model.weights();
  for (const LabTensor& tensor : model.tensors()) {
    double squares = 0;
    const int64_t size = tensor.rows * tensor.columns;
    for (int64_t i = 0; i < size; ++i) squares += std::pow(gradient[static_cast<size_t>(tensor.offset + i)], 2);
    ASSERT_GT(squares, 0) << tensor.name;
    const double step = change / squares;  // changes the loss by `change` either way, more than the rounding does
    const auto moved = [&](double by) {
      for (int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<size_t>(tensor.offset + i);
        model.weights()[at] = weights[at] + static_cast<float>(by) * gradient[at];
      }
      const double loss = mean_loss(pass, batch);
      model.weights() = weights;
      return loss;
    };
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step) / squares, 1.0, tolerance) << tensor.name;
  }
}

TEST_P(LabGradient, EqualsDifferencesOfTheLoss) {
  expect_gradient_of_the_loss(gradient_specs()[GetParam()], training_kernels(), random_batch(5, {70, 33, 1, 300}), 0.02,
                              0.15);
}

// Without rounded factors a smaller step serves, and the two sides agree ten times as well.
TEST_P(LabGradient, OfExactProductsEqualsDifferencesOfTheLoss) {
  expect_gradient_of_the_loss(gradient_specs()[GetParam()], exact_training_kernels(), random_batch(5, {70, 33, 1, 20}),
                              0.002, 0.015);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LabGradient, ::testing::Range<size_t>(0, gradient_specs().size()));

TEST(LabModel, ParameterCountIsThatOfTheArray) {
  for (const ArchSpec& spec : {tiny(), tiny(HiddenActivation::silu, 4), *lab_spec("lab")})
    EXPECT_EQ(std::ssize(LabModel(spec, 1).weights()), trained_parameters(spec));
}

TEST(LabModel, DocumentsDoNotSeeEachOtherAndTokensNotTheFuture) {
  LabModel model(tiny(), 3);
  ThreadPool pool(1);
  LabPass pass(model, pool, training_kernels());
  LabBatch batch = random_batch(7, {40, 50});
  std::ranges::fill(batch.weights, 1.0f);
  const std::vector<float> before = pass.logits(batch);
  batch.ids[60] = (batch.ids[60] + 1) % 64;  // of the second document
  const std::vector<float> after = pass.logits(batch);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 60 * 64, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 60 * 64, before.begin() + 61 * 64, after.begin() + 60 * 64));
  EXPECT_FALSE(std::equal(before.begin() + 80 * 64, before.begin() + 81 * 64, after.begin() + 80 * 64));
}

TEST(LabModel, ADocumentHasTheSameLogitsWhereverItIs) {
  LabModel model(tiny(), 3);
  ThreadPool pool(2);
  LabPass pass(model, pool, training_kernels());
  LabBatch both = random_batch(9, {37, 50});
  std::ranges::fill(both.weights, 1.0f);
  LabBatch second;
  second.starts = {0};
  second.ids.assign(both.ids.begin() + 37, both.ids.end());
  second.targets.assign(both.targets.begin() + 37, both.targets.end());
  second.weights.assign(50, 1.0f);
  const std::vector<float> together = pass.logits(both), alone = pass.logits(second);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 37 * 64));
}

void expect_equal_gradients(const ArchSpec& spec) {
  LabModel model(spec, 3);
  ThreadPool pool(1);
  const LabBatch batch = random_batch(11, {100, 20, 290});
  LabPass plain(model, pool, portable_training_kernels());
  const LabLoss expected = plain.run(batch, true);
  const std::vector<float> gradient = model.gradient();
  for (const TrainingKernels* kernels : available_training_kernels()) {
    LabPass fast(model, pool, *kernels);
    const LabLoss found = fast.run(batch, true);
    EXPECT_NEAR(found.loss / found.weight, expected.loss / expected.weight, 1e-3) << kernels->name;
    double difference = 0, squares = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      difference += std::pow(gradient[i] - model.gradient()[i], 2);
      squares += std::pow(gradient[i], 2);
    }
    EXPECT_LT(std::sqrt(difference), 0.01 * std::sqrt(squares)) << kernels->name;
  }
}

TEST(LabModel, KernelsAgree) {
  for (const ArchSpec& spec : {tiny(), wide_heads()}) expect_equal_gradients(spec);
}

// Five steps of Newton and Schulz bring all singular values near 1, for wide and for tall matrices.
TEST(LabOptimizer, AMatrixMovesByAnOrthogonalOne) {
  for (const TrainingKernels* kernels : available_training_kernels()) {
    LabModel model(tiny(), 3);
    ThreadPool pool(1);
    const LabRates rates{.muon = 1, .adam = 0, .decay = 0, .clip = 1e9};
    LabOptimizer optimizer(model, pool, *kernels, rates);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& one : model.gradient()) one = normal(random);
    const std::vector<float> before = model.weights();
    optimizer.step(1.0);
    for (const LabTensor* tensor : {&model.layers()[0].gate_up, &model.layers()[0].down}) {  // tall and wide
      const int64_t rows = tensor->parts[0], columns = tensor->columns;
      const auto moved = [&](int64_t r, int64_t c) {
        const auto at = static_cast<size_t>(tensor->offset + r * columns + c);
        return static_cast<double>(before[at] - model.weights()[at]);
      };
      double squares = 0, with_gradient = 0;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          squares += moved(r, c) * moved(r, c);
          with_gradient += moved(r, c) *
                           static_cast<double>(model.gradient()[static_cast<size_t>(tensor->offset + r * columns + c)]);
        }
      }
      const double scale = std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns));
      const double rank = static_cast<double>(std::min(rows, columns));
      EXPECT_GT(squares / scale / rank, 0.6)
          << tensor->name << " " << kernels->name;  // the mean of the singular values' squares
      EXPECT_LT(squares / scale / rank, 1.3) << tensor->name << " " << kernels->name;
      EXPECT_GT(with_gradient, 0) << tensor->name << " " << kernels->name;
    }
  }
}

TEST(LabModel, TrainingDoesNotDependOnThreadsAndLearns) {
  std::vector<std::vector<float>> results;
  for (int threads : {1, 3}) {
    LabModel model(tiny(), 3);
    ThreadPool pool(threads);
    LabPass pass(model, pool, training_kernels());
    LabOptimizer optimizer(model, pool, training_kernels(), {});
    LabBatch batch = random_batch(13, {60, 60, 30});
    const double before = mean_loss(pass, batch);
    for (int i = 0; i < 30; ++i) {
      pass.run(batch, true);
      optimizer.step(1.0);
    }
    EXPECT_LT(mean_loss(pass, batch), before - 1.0);
    results.push_back(model.weights());
  }
  EXPECT_EQ(results[0], results[1]);
}

// Losses of the pass before it was split into blocks, of which none changed the order of a sum.
TEST(LabModel, LossesOfFourUpdatesAreTheRecordedOnes) {
  const std::vector<std::pair<ArchSpec, std::array<double, 4>>> recorded = {
      {tiny(), {4.1592737847, 4.0673934251, 3.9835344190, 3.8930771419}},
      {tiny(HiddenActivation::relu), {4.1566041357, 4.0653971716, 3.9742843528, 3.8874564844}},
      {tiny(HiddenActivation::silu, 4), {4.1756343068, 4.0693489039, 4.0107096864, 3.9120274391}}};
  for (const auto& [spec, losses] : recorded) {
    LabModel model(spec, 3);
    ThreadPool pool(2);
    LabPass pass(model, pool, portable_training_kernels());
    LabOptimizer optimizer(model, pool, portable_training_kernels(), {});
    const LabBatch batch = random_batch(13, {60, 60, 450, 30});
    for (const double expected : losses) {
      const LabLoss loss = pass.run(batch, true);
      EXPECT_NEAR(loss.loss / loss.weight, expected, 1e-6) << spec.moe.experts;
      optimizer.step(1.0);
    }
  }
}

TEST(TrainingKernels, AttentionEqualsAPlainOne) {
  constexpr int64_t kTokens = 177, kDim = 32, kHeads = 2, kWidth = (kHeads + 2) * kDim;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kTokens * kWidth);
  for (float& value : values) value = normal(random);
  std::vector<Bf16> qkv(values.size()), out(kTokens * kHeads * kDim);
  portable_training_kernels().round(values.data(), qkv.data(), std::ssize(values));
  std::vector<float> sums(kTokens * kHeads), scratch(static_cast<size_t>(training_scratch(kTokens, kDim)));
  TrainingAttention a;
  a.q = qkv.data();
  a.k = qkv.data() + kHeads * kDim;
  a.v = a.k + kDim;
  a.stride = kWidth;
  a.out_stride = kHeads * kDim;
  a.tokens = kTokens;
  a.heads = kHeads;
  a.dim = kDim;
  a.out = out.data();
  a.log_sums = sums.data();
  a.log_stride = kHeads;
  a.scratch = scratch.data();
  const auto wide = [](Bf16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); };
  for (const TrainingKernels* kernels : available_training_kernels()) {
    kernels->attend(a);
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t t = 0; t < kTokens; ++t) {
        std::vector<double> mixed(kDim);
        double sum = 0;
        for (int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (int64_t i = 0; i < kDim; ++i)
            score += wide(a.q[t * kWidth + head * kDim + i]) * wide(a.k[s * kWidth + i]);
          const double share = std::exp(score / std::sqrt(static_cast<double>(kDim)));
          sum += share;
          for (int64_t i = 0; i < kDim; ++i) mixed[static_cast<size_t>(i)] += share * wide(a.v[s * kWidth + i]);
        }
        EXPECT_NEAR(sums[static_cast<size_t>(t * kHeads + head)], std::log(sum), 1e-3) << kernels->name;
        for (int64_t i = 0; i < kDim; ++i)
          ASSERT_NEAR(wide(out[static_cast<size_t>((t * kHeads + head) * kDim + i)]),
                      mixed[static_cast<size_t>(i)] / sum, 0.02)
              << kernels->name;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
