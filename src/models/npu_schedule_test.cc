// Schedules of subgraphs on an NPU and a float processor, and the paper's ablation by the cost model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/philox.h"
#include "models/npu/cost_model.h"
#include "models/npu/groups.h"

namespace millrace {
namespace {

// Every subgraph starts after those before it have ended, and a processor runs one at a time.
void expect_valid(const std::vector<NpuSubgraph>& subgraphs, const NpuTimeline& timeline) {
  ASSERT_EQ(timeline.start.size(), subgraphs.size());
  std::vector<std::pair<double, double>> busy[2];
  for (size_t i = 0; i < subgraphs.size(); ++i) {
    ASSERT_GE(timeline.start[i], 0) << subgraphs[i].name;
    const double end = timeline.start[i] + subgraphs[i].seconds;
    EXPECT_LE(end, timeline.seconds + 1e-12);
    for (const int32_t before : subgraphs[i].after) {
      const auto b = static_cast<size_t>(before);
      EXPECT_GE(timeline.start[i] + 1e-12, timeline.start[b] + subgraphs[b].seconds) << subgraphs[i].name;
    }
    busy[subgraphs[i].on_npu].emplace_back(timeline.start[i], end);
  }
  for (auto& own : busy) {
    std::ranges::sort(own);
    for (size_t i = 1; i < own.size(); ++i) EXPECT_GE(own[i].first + 1e-12, own[i - 1].second);
  }
}

TEST(NpuSchedule, TheNpuStallsLessOutOfOrder) {
  // Two chunks. In order, the float processor begins with a long subgraph that nothing on the NPU waits for.
  const std::vector<NpuSubgraph> subgraphs = {
      {"long", false, 10, {}}, {"norm", false, 1, {}}, {"product", true, 8, {1}}, {"end", false, 1, {0, 2}}};
  const NpuTimeline in_order = schedule_subgraphs(subgraphs, NpuOrder::in_order);
  const NpuTimeline out_of_order = schedule_subgraphs(subgraphs, NpuOrder::out_of_order);
  expect_valid(subgraphs, in_order);
  expect_valid(subgraphs, out_of_order);
  EXPECT_EQ(in_order.seconds, 10 + 1 + 8 + 1);
  EXPECT_EQ(out_of_order.seconds, 1 + 10 + 1);
  EXPECT_EQ(out_of_order.npu_seconds, 8);
  EXPECT_EQ(out_of_order.start[1], 0);
}

TEST(NpuSchedule, ShorterProductsOfTheNpuRunFirst) {
  const std::vector<NpuSubgraph> subgraphs = {{"long", true, 5, {}}, {"short", true, 2, {}}, {"after", false, 4, {1}}};
  const NpuTimeline timeline = schedule_subgraphs(subgraphs, NpuOrder::out_of_order);
  expect_valid(subgraphs, timeline);
  EXPECT_EQ(timeline.start[1], 0);
  EXPECT_EQ(timeline.seconds, 7);
}

TEST(NpuSchedule, AnySubgraphsAreScheduledOnce) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<NpuSubgraph> subgraphs;
    double total = 0;
    for (int32_t i = 0; i < 60; ++i) {
      const auto draw = [&](uint64_t kind) { return philox_uniform(seed, kind, static_cast<uint64_t>(i)); };
      NpuSubgraph one{std::to_string(i), draw(0) < 0.5, draw(1), {}};
      for (int32_t before = std::max(0, i - 6); before < i; ++before)
        if (philox_uniform(seed, 2, static_cast<uint64_t>(60 * i + before)) < 0.3) one.after.push_back(before);
      total += one.seconds;
      subgraphs.push_back(std::move(one));
    }
    for (const NpuOrder order : {NpuOrder::in_order, NpuOrder::out_of_order}) {
      const NpuTimeline timeline = schedule_subgraphs(subgraphs, order);
      expect_valid(subgraphs, timeline);
      EXPECT_NEAR(timeline.npu_seconds + timeline.float_seconds, total, 1e-9);
      EXPECT_LE(timeline.seconds, total + 1e-9);
    }
  }
}

// Every subgraph runs once, on its group's thread, after those that it waits for.
TEST(NpuGroups, ThreadsRunSubgraphsInAnAllowedOrder) {
  const auto groups = NpuGroups::create(1).value();
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::vector<NpuSubgraph> subgraphs;
    for (int32_t i = 0; i < 40; ++i) {
      NpuSubgraph one{std::to_string(i), philox_uniform(seed, 0, static_cast<uint64_t>(i)) < 0.5, 1, {}};
      for (int32_t before = std::max(0, i - 4); before < i; ++before)
        if (philox_uniform(seed, 2, static_cast<uint64_t>(40 * i + before)) < 0.3) one.after.push_back(before);
      subgraphs.push_back(std::move(one));
    }
    std::vector<std::atomic<int>> ended(subgraphs.size());
    std::atomic<int> too_early{0}, on_wrong_thread{0};
    const auto caller = std::this_thread::get_id();
    groups->run(subgraphs, seed % 2 ? NpuOrder::in_order : NpuOrder::out_of_order, [&](int32_t i) {
      const NpuSubgraph& own = subgraphs[static_cast<size_t>(i)];
      for (const int32_t before : own.after) too_early += ended[static_cast<size_t>(before)] != 1;
      on_wrong_thread += own.on_npu == (std::this_thread::get_id() == caller);
      ++ended[static_cast<size_t>(i)];
    });
    EXPECT_EQ(too_early, 0);
    EXPECT_EQ(on_wrong_thread, 0);
    for (const auto& one : ended) EXPECT_EQ(one, 1);
  }
}

TEST(NpuCosts, TheModelHasThePapersProduct) {
  const NpuModel npu;
  EXPECT_NEAR(npu.run_seconds({64, 2048, 2048}), 0.9e-3, 0.05e-3);
  EXPECT_NEAR(64 * 2048.0 * 2048 / npu.machine().cpu_int8_products, 4.2e-3, 0.05e-3);
  EXPECT_NEAR(npu.prepare_seconds({256, find_npu_transformer("gemma-2b")->weights(), 1}), 0.36 + 11.54, 0.5);
}

// Each technique is faster than the prompt without it, as in the paper's ablation.
TEST(NpuCosts, TheAblationHasThePapersOrder) {
  for (const NpuTransformer& model : npu_transformers())
    for (const int64_t prompt : {512, 1024}) {
      const auto steps = npu_ablation(model, prompt, 256, NpuModel());
      ASSERT_EQ(steps.size(), 5u);
      for (size_t i = 2; i < steps.size(); ++i)
        EXPECT_LT(steps[i].seconds(), steps[i - 1].seconds()) << model.name << ": " << steps[i].name;
      const double shadow = steps[2].seconds() / steps[3].seconds();
      const double out_of_order = steps[3].seconds() / steps[4].seconds();
      EXPECT_GT(shadow, 3.9);
      EXPECT_GT(out_of_order, 1.1);
      EXPECT_LT(out_of_order, 1.5);
    }
}

TEST(NpuCosts, SubgraphsOfAPromptAreValidInBothOrders) {
  const NpuTransformer model{"small", 3, 64, 64, 32, 128, true};
  const NpuPlan plan{.prompt = 1000, .chunk = 256, .pruned = 0.5};
  const auto subgraphs = npu_subgraphs(model, plan, NpuModel());
  // Four chunks of three layers: four float subgraphs, four products, and outliers of half of the inputs.
  EXPECT_EQ(subgraphs.size(), 4u * 3 * (4 + 4 + 2));
  for (const NpuOrder order : {NpuOrder::in_order, NpuOrder::out_of_order})
    expect_valid(subgraphs, schedule_subgraphs(subgraphs, order));
}

}  // namespace
}  // namespace millrace
