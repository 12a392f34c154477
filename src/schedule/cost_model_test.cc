#include "schedule/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace millrace {
namespace {

StepShape model_shape(int64_t first, int64_t count) {
  StepShape out;
  out.add(first, count, true);
  return out;
}

TEST(CostModel, ShapesCountKeysAndPairs) {
  StepShape s = model_shape(10, 3);  // attends to 11 + 12 + 13
  EXPECT_EQ(s.tokens, 3);
  EXPECT_EQ(s.keys, 13);
  EXPECT_DOUBLE_EQ(s.pairs, 36);
  s.add(99, 1, false);
  EXPECT_EQ(s.outputs, 1);
  EXPECT_DOUBLE_EQ(s.pairs, 136);
}

TEST(CostModel, AnalyticIsTheMaximumOfComputeAndMemoryTime) {
  auto cost = parse_cost_model(
      R"({"kind": "analytic", "flop_per_token": 1e9, "flop_per_pair": 0, "flops": 1e12, "weight_bytes": 1e9,
                                   "kv_bytes_per_token": 1e6, "bandwidth": 1e11, "step_overhead": 0.001, "swap_bandwidth": 1e9})",
      "test");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  EXPECT_NEAR((*cost)->step_seconds(model_shape(0, 1)), 0.001 + 0.01 + 1e-5, 1e-9);  // weights and one key
  EXPECT_NEAR((*cost)->step_seconds(model_shape(0, 100)), 0.001 + 0.1, 1e-9);
  EXPECT_NEAR((*cost)->swap_seconds(1000), 1.0, 1e-9);
  EXPECT_NEAR((*cost)->prefill_seconds(250, 100), 3 * 0.001 + 0.25, 1e-6);
}

// Matrices 0.1 s, or weights 0.01 s a mini-batch; a key 1 us at two workers, a row 1 us on the link.
TEST(CostModel, WorkersOverlapAttentionWithTheMatricesOfTheOtherHalf) {
  const auto make = [](const char* batches) {
    auto cost = parse_cost_model(
        std::string(R"({"kind": "workers", "flop_per_token": 1e9, "flops": 1e12, "weight_bytes": 1e9, "bandwidth": 1e11,
                        "step_overhead": 0.001, "workers": 2, "kv_bytes_per_token": 1e6, "worker_bandwidth": 1e12,
                        "worker_efficiency": 0.5, "row_bytes_per_token": 1e4, "link_bandwidth": 1e10,
                        "link_seconds": 0.002, "batches": )") +
            batches + "}",
        "test");
    EXPECT_TRUE(cost.ok()) << (cost.ok() ? "" : cost.error().message);
    return std::move(*cost);
  };
  StepShape s;
  s.tokens = 100, s.keys = 200000;
  EXPECT_NEAR(make("1")->step_seconds(s), 0.001 + 0.1 + 0.2 + 1e-4 + 0.002, 1e-9);
  EXPECT_NEAR(make("2")->step_seconds(s), 0.001 + 0.2 + 1e-4 + 0.004, 1e-9);
  s.keys = 1000;
  EXPECT_NEAR(make("2")->step_seconds(s), 0.001 + 0.1, 1e-9);  // bound by the matrices
  s.tokens = 4;
  EXPECT_NEAR(make("2")->step_seconds(s), 0.001 + 0.02, 1e-9);  // the weights are read for both halves
  s.tokens = 1;
  EXPECT_NEAR(make("2")->step_seconds(s), 0.001 + 0.01 + 0.001 + 1e-6 + 0.002, 1e-9);  // no halves
}

TEST(CostModel, TablesAreLinearBetweenAndBeyond) {
  auto cost = parse_cost_model(R"({"kind": "table", "tokens": [1, 11], "keys": [0, 100], "seconds": [[1, 2], [3, 6]]})",
                               "test");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  StepShape s;
  s.tokens = 6, s.keys = 50;
  EXPECT_DOUBLE_EQ((*cost)->step_seconds(s), 3.0);
  s.tokens = 21, s.keys = 0;
  EXPECT_DOUBLE_EQ((*cost)->step_seconds(s), 5.0);
  s.tokens = 1, s.keys = 300;
  EXPECT_DOUBLE_EQ((*cost)->step_seconds(s), 4.0);
}

TEST(CostModel, PiecewiseIsASumOfCurves) {
  auto cost = parse_cost_model(
      R"({"kind": "piecewise", "tokens": {"at": [1, 11], "seconds": [1, 3]}, "outputs": {"at": [0, 2], "seconds": [0, 4]},
                                   "pairs": {"at": [0, 10], "seconds": [0, 1]}, "kv_bytes_per_token": 10, "swap_bandwidth": 1e6})",
      "test");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  StepShape s;
  s.tokens = 6, s.outputs = 1, s.pairs = 20, s.keys = 1000;
  EXPECT_DOUBLE_EQ((*cost)->step_seconds(s), 2.0 + 2.0 + 2.0);
  EXPECT_DOUBLE_EQ((*cost)->swap_seconds(1000), 0.01);
  EXPECT_DOUBLE_EQ((*cost)->load_seconds(1000), 0.01);  // a file without disk speed
  auto disk = parse_cost_model(
      R"({"kind": "piecewise", "tokens": {"at": [1, 11], "seconds": [1, 3]}, "kv_bytes_per_token": 10, "swap_bandwidth": 1e6,
                                   "disk_bandwidth": 1e5, "disk_overhead": 0.5, "slowdown": 1.5})",
      "test");
  ASSERT_TRUE(disk.ok()) << disk.error().message;
  EXPECT_DOUBLE_EQ((*disk)->load_seconds(1000), 0.6);
  StepShape one;
  one.tokens = 1;
  EXPECT_DOUBLE_EQ((*disk)->step_seconds(one), 1.5);
}

TEST(CostModel, DefectsAreNamed) {
  for (const char* text : {"", "[]", "{}", R"({"kind": "guess"})", R"({"kind": "analytic"})",
                           R"({"kind": "table", "tokens": [2, 1], "keys": [0], "seconds": [[1], [1]]})",
                           R"({"kind": "table", "tokens": [1], "keys": [0], "seconds": [[1], [1]]})",
                           R"({"kind": "table", "tokens": [1], "keys": [0], "seconds": [[-1]]})",
                           R"({"kind": "table", "tokens": ["1"], "keys": [0], "seconds": [[1]]})",
                           R"({"kind": "piecewise"})", R"({"kind": "piecewise", "tokens": 1})",
                           R"({"kind": "piecewise", "tokens": {"at": [1, 1], "seconds": [1, 2]}})",
                           R"({"kind": "piecewise", "tokens": {"at": [1, 2], "seconds": [1]}})",
                           R"({"kind": "piecewise", "tokens": {"at": [1], "seconds": [-1]}})"}) {
    auto cost = parse_cost_model(text, "costs.json");
    ASSERT_FALSE(cost.ok()) << text;
    EXPECT_EQ(cost.error().kind, ErrorKind::user);
    EXPECT_NE(cost.error().message.find("costs.json"), std::string::npos);
  }
  EXPECT_FALSE(load_cost_model("/nonexistent").ok());
  for (const char* name : {"llama3-70b-8xa800", "llama-7b-a100", "opt-13b-a100", "mistral-7b-a100", "llama-7b-a10",
                           "llama-7b-a10-2epyc", "llama-7b-a10-4epyc", "opt-13b-a100-4epyc"})
    EXPECT_TRUE(load_cost_model(name).ok()) << name;
}

TEST(CostModel, LearnsStepTimes) {
  auto cost = make_learned_cost();
  auto truth = [](const StepShape& s) {
    return 0.002 + 0.0005 * static_cast<double>(s.tokens) + 1e-6 * static_cast<double>(s.keys);
  };
  for (int i = 0; i < 400; ++i) {
    StepShape s;
    s.tokens = 1 + i * 37 % 200, s.keys = i * 7919 % 50000;
    cost->observe(s, truth(s));
  }
  for (int64_t tokens : {1, 50, 500}) {
    StepShape s;
    s.tokens = tokens, s.keys = 20000;
    EXPECT_NEAR(cost->step_seconds(s) / truth(s), 1.0, 0.05) << tokens;
  }
}

}  // namespace
}  // namespace millrace
