#include "train/story_model.h"

#include <gtest/gtest.h>

#include "train/fast_ops.h"
#include "train/fast_sgemm.h"
#include "train/story_optimizer.h"
#include "train/token_stream.h"

namespace millrace {
namespace {

StoryModelConfig tiny() {
  StoryModelConfig config;
  config.vocab = 50;
  config.context = 32;
  config.dim = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.ffn = 64;
  config.dropout = 0;
  config.bf16 = false;
  return config;
}

TEST(StoryModel, ShapesAndParameterCount) {
  StoryModel model(tiny(), 1);
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, tiny().parameters());
  EXPECT_EQ(model.layers()[0].qkv.size(0), 32 + 2 * 16);  // two of four heads for keys, and for values
  torch::Tensor logits = model.forward(torch::zeros({3, 7}, torch::kInt64));
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{21, 50}));
}

TEST(StoryModel, AttentionIsCausal) {
  StoryModel model(tiny(), 1);
  torch::Tensor a = torch::arange(12, torch::kInt64).view({1, 12}), b = a.clone();
  b[0][8] = 40;
  torch::Tensor of_a = model.forward(a), of_b = model.forward(b);
  EXPECT_TRUE(torch::equal(of_a.narrow(0, 0, 8), of_b.narrow(0, 0, 8)));
  EXPECT_FALSE(torch::allclose(of_a.narrow(0, 8, 4), of_b.narrow(0, 8, 4)));
}

TEST(StoryModel, OrderMattersThroughRotation) {
  StoryModel model(tiny(), 1);
  torch::Tensor a = torch::tensor({3, 7, 5}, torch::kInt64).view({1, 3}),
                b = torch::tensor({7, 3, 5}, torch::kInt64).view({1, 3});
  EXPECT_FALSE(torch::allclose(model.forward(a)[2], model.forward(b)[2], 1e-4, 1e-5));
}

class Learns : public ::testing::TestWithParam<bool> {};

TEST_P(Learns, ARepeatedSequence) {
  StoryModel model(tiny(), 1);
  StoryOptimizerConfig config;
  config.muon = GetParam();
  StoryOptimizer optimizer(model, config);
  TokenStream stream({{5, 6, 7, 8, 9, 10, 11, 12}, {20, 21, 22, 23, 24, 25}}, 3);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    const TokenBatch batch = stream.next(4, 8);
    torch::Tensor loss = torch::nn::functional::cross_entropy(model.forward(batch.inputs), batch.targets);
    loss.backward();
    optimizer.step(1.0);
    if (step == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  EXPECT_GT(first, 3.0);
  EXPECT_LT(last, 1.0);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Learns, ::testing::Bool());

TEST(FastOps, Bf16LinearIsCloseToLinearAndSoAreItsGradients) {
  torch::manual_seed(3);
  torch::Tensor x = torch::randn({64, 32}).requires_grad_(), w = torch::randn({48, 32}).requires_grad_(),
                g = torch::randn({64, 48});
  torch::matmul(x, w.t()).backward(g);
  torch::Tensor dx = x.grad().clone(), dw = w.grad().clone();
  x.mutable_grad().zero_();
  w.mutable_grad().zero_();
  torch::Tensor y = bf16_linear(x, w);
  y.backward(g);
  EXPECT_LT((y - torch::matmul(x, w.t())).norm().item<double>(), 0.01 * y.norm().item<double>());
  EXPECT_LT((dx - x.grad()).norm().item<double>(), 0.01 * dx.norm().item<double>());
  EXPECT_LT((dw - w.grad()).norm().item<double>(), 0.01 * dw.norm().item<double>());
}

TEST(FastOps, DropoutKeepsTheMeanAndItsGradientHasTheSameMask) {
  torch::Tensor x = torch::ones({400, 500}).requires_grad_();
  torch::Tensor y = seeded_dropout(x, 0.25, 11);
  EXPECT_NEAR((y == 0).to(torch::kFloat32).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.01);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), y.detach()));
  EXPECT_FALSE(torch::equal(seeded_dropout(x, 0.25, 12), y));
}

TEST(FastSgemm, EqualsASumInDouble) {
  torch::manual_seed(5);
  torch::Tensor a = torch::randn({37, 19}), b = torch::randn({19, 23});
  for (bool left : {false, true}) {
    for (bool right : {false, true}) {
      torch::Tensor x = left ? a.t().contiguous().t() : a, y = right ? b.t().contiguous().t() : b;
      torch::Tensor want = torch::matmul(a.to(torch::kFloat64), b.to(torch::kFloat64));
      EXPECT_LT((torch::mm(x, y).to(torch::kFloat64) - want).abs().max().item<double>(), 1e-4);
    }
  }
}

TEST(TokenStream, EveryEpochHasEachStoryOnceInANewOrder) {
  TokenStream stream({{10, 11}, {20, 21, 22}, {30}}, 9);
  EXPECT_EQ(stream.tokens_per_epoch(), 12);
  std::vector<int64_t> counts(40, 0);
  const TokenBatch batch = stream.next(1, 11);
  for (int64_t i = 0; i < 11; ++i) ++counts[static_cast<size_t>(batch.inputs[0][i].item<int64_t>())];
  for (int64_t i = 0; i + 1 < 11; ++i)
    EXPECT_EQ(batch.inputs[0][i + 1].item<int64_t>(), batch.targets[i].item<int64_t>());
  for (size_t id : {10, 11, 20, 21, 22, 30}) EXPECT_LE(counts[id], 1);
  EXPECT_EQ(counts[1], 3);  // <s>
}

TEST(TokenStream, SeekResumesAtThePosition) {
  std::vector<std::vector<TokenId>> stories;
  for (int i = 0; i < 30; ++i) stories.push_back({i + 3, i + 4, i + 5});
  TokenStream a(stories, 2), b(stories, 2);
  for (int i = 0; i < 5; ++i) a.next(2, 16);
  b.seek(a.epoch(), a.cursor());
  EXPECT_TRUE(torch::equal(a.next(2, 16).inputs, b.next(2, 16).inputs));
}

}  // namespace
}  // namespace millrace
