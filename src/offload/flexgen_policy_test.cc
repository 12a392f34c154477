// The policies of the linear program against a search over a grid of shares, which adds up times and bytes by itself.
#include "offload/flexgen_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

FlexgenProblem two_levels(double memory) {
  return {.levels = {{"memory", memory, 0, 0}, {"disk", 1e12, 2e9, 1e9}},
          .layers = 20,
          .layer_bytes = 5e7,
          .key_bytes = 4096,
          .activation_bytes = 8192,
          .layers_in_flight = 3,
          .streams = 64,
          .prompt = 256,
          .generated = 64,
          .chunk = 512,
          .read_work = 1e-10,
          .decode_seconds = [](int64_t rows) { return 1e-3 + 1e-4 * static_cast<double>(rows); },
          .prefill_seconds = [](int64_t rows) { return 1e-4 * static_cast<double>(rows); }};
}

struct Times {
  double prefill = 0, decode = 0, bytes = 0;
};

// Two levels; w, c, h: the shares in memory.
Times times_of(const FlexgenProblem& p, double block, double w, double c, double h) {
  const double s = static_cast<double>(p.prompt), n = static_cast<double>(p.generated);
  const double layers = static_cast<double>(p.layers), chunk = static_cast<double>(p.chunk);
  const double weights = (1 - w) * p.layer_bytes, keys = (1 - c) * block * p.key_bytes;
  const double rows = (1 - h) * block * p.activation_bytes;
  const double read = weights + keys * (s + n / 2) + rows, written = keys + rows;
  const double prompt_read = weights * std::ceil(block * s / chunk) + rows * s,
               prompt_written = keys * (s + 1) + rows * s;
  const OffloadLevel& disk = p.levels[1];
  const auto whole = static_cast<int64_t>(block);
  Times out;
  out.decode =
      std::max({read / disk.read_bytes, written / disk.write_bytes, p.decode_seconds(whole) + read * p.read_work});
  out.prefill = std::max({prompt_read / disk.read_bytes, prompt_written / disk.write_bytes,
                          p.prefill_seconds(whole * p.prompt) + prompt_read * p.read_work});
  const double all_keys = block * (s + n) * p.key_bytes;
  out.bytes = w * layers * p.layer_bytes + (1 - w) * p.layers_in_flight * p.layer_bytes + c * layers * all_keys +
              (1 - c) * 2 * all_keys + h * std::min(block * s, chunk) * p.activation_bytes;
  return out;
}

TEST(FlexgenPolicy, IsTheBestOfAGrid) {
  for (const double memory : {2.5e8, 6e8, 1.2e9, 3e9}) {
    for (const int64_t block : {1, 4, 32}) {
      const FlexgenProblem problem = two_levels(memory);
      const auto policy = solve_flexgen(problem, block);
      double best = 1e300;
      constexpr int kSteps = 100;
      for (int w = 0; w <= kSteps; ++w)
        for (int c = 0; c <= kSteps; ++c)
          for (int h = 0; h <= kSteps; h += 20) {
            const Times at =
                times_of(problem, static_cast<double>(block), w / 1.0 / kSteps, c / 1.0 / kSteps, h / 1.0 / kSteps);
            if (at.bytes <= memory) best = std::min(best, at.prefill + 63 * at.decode);
          }
      ASSERT_EQ(policy.ok(), best < 1e300) << memory << " " << block;
      if (!policy.ok()) continue;
      const double found = policy->prefill_seconds + 63 * policy->decode_seconds;
      EXPECT_LE(found, best * (1 + 1e-9)) << memory << " " << block;
      EXPECT_GE(found, best * 0.95) << memory << " " << block;
      // The policy keeps what it promises.
      const Times own =
          times_of(problem, static_cast<double>(block), policy->weights[0], policy->keys[0], policy->activations[0]);
      EXPECT_NEAR(own.prefill + 63 * own.decode, found, 1e-6 * found);
      EXPECT_LE(own.bytes, memory * (1 + 1e-9));
    }
  }
}

// One read of a layer serves all streams of the block, so larger blocks pay until the computation takes as long.
TEST(FlexgenPolicy, TakesLargeBlocksWhereTheDiskIsSlow) {
  const FlexgenProblem problem = two_levels(5e8);
  const auto one = solve_flexgen(problem, 1), eight = solve_flexgen(problem, 8);
  ASSERT_TRUE(one.ok() && eight.ok());
  EXPECT_GT(eight->decode_tokens_per_second, 4 * one->decode_tokens_per_second);
  const auto best = best_flexgen_policy(problem);
  ASSERT_TRUE(best.ok());
  EXPECT_GE(best->tokens_per_second, eight->tokens_per_second);
  EXPECT_GT(best->block, 1);
}

TEST(FlexgenPolicy, KeepsKeysInMemoryIfTheyDoNotMove) {
  FlexgenProblem problem = two_levels(6e8);
  problem.keys_move = problem.activations_move = false;
  const auto policy = best_flexgen_policy(problem);
  ASSERT_TRUE(policy.ok());
  EXPECT_NEAR(policy->keys[0], 1, 1e-9);
  EXPECT_NEAR(policy->activations[0], 1, 1e-9);
  EXPECT_LT(policy->weights[0], 1);
  EXPECT_NE(policy->text(problem).find("keys 100 % memory; activations 100 % memory"), std::string::npos)
      << policy->text(problem);
}

// The paper's machine and OPT-30B: 16 GB of GPU memory, 208 GB of memory, an SSD of 2 GB/s.
TEST(FlexgenPolicy, HasAnyNumberOfLevels) {
  FlexgenProblem problem;
  problem.levels = {{"GPU", 15e9, 0, 0}, {"CPU", 200e9, 12e9, 12e9}, {"disk", 1.5e12, 2e9, 1e9}};
  problem.layers = 48;
  problem.layer_bytes = 2 * 12.0 * 7168 * 7168;
  problem.key_bytes = 4 * 7168;
  problem.activation_bytes = 2 * 7168;
  problem.layers_in_flight = 2;
  problem.streams = 256;
  problem.prompt = 512;
  problem.generated = 32;
  problem.decode_seconds = [](int64_t rows) { return 24.0 * 7168 * 7168 * static_cast<double>(rows) / 40e12; };
  problem.prefill_seconds = problem.decode_seconds;
  const auto policy = best_flexgen_policy(problem);
  ASSERT_TRUE(policy.ok()) << policy.error().message;
  EXPECT_EQ(policy->weights.size(), 3u);
  EXPECT_GT(policy->weights[1], 0.5);  // most weights are next to the GPU, and none are left on the disk
  EXPECT_LT(policy->weights[2], 0.05);
  EXPECT_GE(policy->block, 64);
  problem.levels[1].bytes = 20e9;  // too little for the weights
  const auto less = best_flexgen_policy(problem);
  ASSERT_TRUE(less.ok()) << less.error().message;
  EXPECT_GT(less->weights[2], 0.2);
  EXPECT_LT(less->tokens_per_second, policy->tokens_per_second);
}

TEST(FlexgenPolicy, RefusesWhatNoLevelHolds) {
  const auto policy = best_flexgen_policy(two_levels(1e8));
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.error().kind, ErrorKind::resource);
}

}  // namespace
}  // namespace millrace
