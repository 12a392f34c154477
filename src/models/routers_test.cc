// Routers: every member against a plain reference, and a model with router=switch against one that was stored with one
// expert per token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/cpu.h"
#include "base/philox.h"
#include "models/arch_spec.h"
#include "models/router.h"

namespace millrace {
namespace {

std::vector<double> probabilities(const std::vector<float>& logits) {
  std::vector<double> out;
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float l : logits) total += std::exp(l - highest);
  for (float l : logits) out.push_back(std::exp(l - highest) / total);
  return out;
}

struct Choice {
  std::vector<int32_t> chosen;
  std::vector<float> weights;
};

Choice choose(const Router& router, MoeSpec moe, std::vector<float> logits) {
  static const KernelTable kernels = make_kernel_table(detect_isa());
  if (router.configure) router.configure(moe);
  Choice out{std::vector<int32_t>(static_cast<size_t>(moe.used)), std::vector<float>(static_cast<size_t>(moe.used))};
  router.choose(moe, kernels, logits.data(), out.chosen.data(), out.weights.data());
  return out;
}

std::vector<float> random_logits(int64_t experts, uint64_t seed) {
  std::vector<float> out;
  for (int64_t e = 0; e < experts; ++e)
    out.push_back(static_cast<float>(8 * philox_uniform(seed, 0, static_cast<uint64_t>(e)) - 4));
  return out;
}

TEST(Routers, TopkTakesTheMostProbableInRankOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    for (bool normalize : {false, true}) {
      const MoeSpec moe{.experts = 9, .used = 3, .normalize = normalize};
      const std::vector<float> logits = random_logits(moe.experts, seed);
      const Choice choice = choose(*routers().find("topk")->member, moe, logits);
      std::vector<int32_t> order(9);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
      const std::vector<double> p = probabilities(logits);
      const double total = p[order[0]] + p[order[1]] + p[order[2]];
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(choice.chosen[rank], order[rank]);
        EXPECT_NEAR(choice.weights[rank], p[order[rank]] / (normalize ? total : 1), 1e-5);
      }
    }
}

// DeepSeek's rules, by their definition: scores, the best groups, the best experts in them, weights.
Choice choose_by_definition(const MoeSpec& moe, const std::vector<float>& logits) {
  std::vector<double> scores = probabilities(logits);
  if (moe.sigmoid)
    std::ranges::transform(logits, scores.begin(), [](float l) { return 1 / (1 + std::exp(-double{l})); });
  std::vector<double> rated = scores;
  for (size_t e = 0; e < moe.selection_bias.size(); ++e) rated[e] += moe.selection_bias[e];
  const auto best_of = [](const std::vector<double>& values, int64_t count) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
    order.resize(static_cast<size_t>(count));
    return order;
  };
  const int64_t size = moe.experts / moe.groups;
  std::vector<double> groups;
  for (auto at = rated.begin(); at != rated.end(); at += size) {
    const std::vector<double> own(at, at + size);
    double rate = 0;
    for (size_t e : best_of(own, moe.group_best)) rate += own[e];
    groups.push_back(rate);
  }
  std::vector<double> open(rated.size(), -100);
  for (size_t g : best_of(groups, moe.groups_used))
    std::copy_n(rated.begin() + static_cast<int64_t>(g) * size, size, open.begin() + static_cast<int64_t>(g) * size);
  Choice out;
  double total = 0;
  for (size_t e : best_of(open, moe.used)) {
    out.chosen.push_back(static_cast<int32_t>(e));
    total += scores[e];
  }
  for (int32_t e : out.chosen)
    out.weights.push_back(static_cast<float>(moe.scale * scores[static_cast<size_t>(e)] / (moe.normalize ? total : 1)));
  return out;
}

TEST(Routers, GroupsBiasSigmoidAndScale) {
  int64_t limited = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    MoeSpec moe{.experts = 24, .used = 4, .normalize = seed % 2 == 0, .sigmoid = seed % 3 == 0, .scale = 2.5f};
    moe.groups = seed % 5 == 0 ? 1 : 6;
    moe.groups_used = moe.groups > 1 ? 2 : 1;
    moe.group_best = moe.sigmoid ? 2 : 1;
    if (seed % 4 == 0) moe.selection_bias = random_logits(moe.experts, seed + 1000);
    const std::vector<float> logits = random_logits(moe.experts, seed);
    const Choice choice = choose(*routers().find("topk")->member, moe, logits);
    const Choice expected = choose_by_definition(moe, logits);
    EXPECT_EQ(choice.chosen, expected.chosen) << seed;
    for (size_t i = 0; i < choice.weights.size(); ++i)
      EXPECT_NEAR(choice.weights[i], expected.weights[i], 1e-5) << seed;
    MoeSpec open = moe;
    open.groups = open.groups_used = 1;
    limited += choose(*routers().find("topk")->member, open, logits).chosen != choice.chosen;
  }
  EXPECT_GT(limited, 50);
}

TEST(Routers, SwitchTakesOneWithItsProbability) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    for (bool normalize : {false, true}) {  // the probability is kept whatever the model says
      const MoeSpec moe{.experts = 8, .used = 2, .normalize = normalize};
      const std::vector<float> logits = random_logits(moe.experts, seed);
      const Choice choice = choose(*routers().find("switch")->member, moe, logits);
      ASSERT_EQ(choice.chosen.size(), 1u);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(choice.chosen[0], best);
      EXPECT_NEAR(choice.weights[0], probabilities(logits)[static_cast<size_t>(best)], 1e-5);
    }
}

TEST(Routers, TiesGoToTheLowerIndex) {
  for (const Router* router : routers().members()) {
    const Choice choice = choose(*router, {.experts = 4, .used = 2}, {1, 3, 3, 3});
    EXPECT_EQ(choice.chosen[0], 1) << router->name;
  }
}

TEST(Routers, ARowOfNanChoosesAnExpert) {
  for (const Router* router : routers().members())
    for (int32_t expert : choose(*router, {.experts = 4, .used = 2}, std::vector<float>(4, NAN)).chosen) {
      EXPECT_GE(expert, 0) << router->name;
      EXPECT_LT(expert, 4) << router->name;
    }
}

}  // namespace
}  // namespace millrace
