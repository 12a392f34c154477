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
