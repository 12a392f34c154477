// Edge cases of cost models: each bound at its last valid and first invalid value, defaults of omitted fields, and
// curves and tables at, between and beyond their points.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/ordered_json.h"
#include "base/philox.h"
#include "schedule/cost_fit.h"
#include "schedule/cost_model.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

std::string refused(const Json& json) {
  const auto cost = parse_cost_model(json.dump(), "file");
  return cost.ok() ? "" : cost.error().message;
}

std::unique_ptr<CostModel> make(const Json& json) {
  auto cost = parse_cost_model(json.dump(), "file");
  EXPECT_TRUE(cost.ok()) << (cost.ok() ? "" : cost.error().message);
  return cost.ok() ? std::move(*cost) : nullptr;
}

StepShape shape(int64_t tokens, int64_t keys = 0, int64_t outputs = 0, double pairs = 0) {
  return {tokens, outputs, keys, pairs};
}

const Json kAnalytic = {{"kind", "analytic"}, {"flop_per_token", 1e9}, {"flop_per_pair", 1e6},
                        {"flops", 1e12},      {"weight_bytes", 1e9},   {"kv_bytes_per_token", 1000},
                        {"bandwidth", 1e11},  {"step_overhead", 0.001}};
const Json kTable = {
    {"kind", "table"}, {"tokens", {1, 11, 31}}, {"keys", {0, 100}}, {"seconds", {{1, 2}, {3, 6}, {4, 8}}}};
const Json kPiecewise = {{"kind", "piecewise"}, {"tokens", {{"at", {1, 11, 31}}, {"seconds", {1, 3, 4}}}}};

struct Bound {
  const char* name;
  double least, most;
  bool needed;
};

void try_bounds(const Json& good, std::initializer_list<Bound> bounds) {
  for (const Bound& bound : bounds) {
    Json json = good;
    for (double value : {bound.least, bound.most}) {
      json[bound.name] = value;
      EXPECT_EQ(refused(json), "") << bound.name << " " << value;
    }
    for (double value : {bound.least > 0 ? bound.least * 0.99 : -1e-3, bound.most * 1.01}) {
      json[bound.name] = value;
      EXPECT_EQ(refused(json).find(fmt::format("file: cost model's '{}' must be between", bound.name)), 0u)
          << bound.name << " " << value;
    }
    json[bound.name] = "1";
    EXPECT_EQ(refused(json), fmt::format("file: cost model's '{}' must be a number", bound.name));
    json.erase(bound.name);
    EXPECT_EQ(refused(json), bound.needed ? fmt::format("file: cost model has no '{}'", bound.name) : "");
  }
}

TEST(CostEdges, EachFieldsBounds) {
  try_bounds(kAnalytic, {{"flop_per_token", 0, 1e18, true},
                         {"flop_per_pair", 0, 1e15, true},
                         {"flops", 1e6, 1e21, true},
                         {"flop_efficiency", 1e-3, 1, false},
                         {"weight_bytes", 0, 1e15, true},
                         {"kv_bytes_per_token", 0, 1e9, true},
                         {"bandwidth", 1e6, 1e16, true},
                         {"bandwidth_efficiency", 1e-3, 1, false},
                         {"step_overhead", 1e-9, 10, true},
                         {"seconds_per_token", 0, 10, false},
                         {"swap_bandwidth", 1e6, 1e16, false},
                         {"disk_bandwidth", 1e5, 1e16, false}});
  try_bounds(kTable, {{"kv_bytes_per_token", 0, 1e9, false},
                      {"swap_bandwidth", 1e6, 1e16, false},
                      {"disk_bandwidth", 1e5, 1e16, false}});
  try_bounds(kPiecewise, {{"kv_bytes_per_token", 0, 1e9, false},
                          {"swap_bandwidth", 1e6, 1e16, false},
                          {"disk_bandwidth", 1e5, 1e16, false},
                          {"slowdown", 1, 100, false},
                          {"disk_overhead", 0, 10, false}});
}

TEST(CostEdges, DefaultsOfOmittedFields) {
  const auto analytic = make(kAnalytic);
  EXPECT_DOUBLE_EQ(analytic->step_seconds(shape(100, 0, 0, 1e6)), 0.001 + 0.1 + 1.0);
  EXPECT_DOUBLE_EQ(analytic->step_seconds(shape(1, 1'000'000)), 0.001 + (1e9 + 1e9) / 1e11);
  EXPECT_DOUBLE_EQ(analytic->swap_seconds(16'000'000), 1);
  EXPECT_DOUBLE_EQ(analytic->load_seconds(3'000'000), 1);
  Json slower = kAnalytic;
  slower["flop_efficiency"] = 0.5, slower["bandwidth_efficiency"] = 0.25, slower["seconds_per_token"] = 0.01,
  slower["swap_bandwidth"] = 1e9, slower["disk_bandwidth"] = 1e8;
  const auto half = make(slower);
  EXPECT_DOUBLE_EQ(half->step_seconds(shape(100)), 0.001 + 0.2 + 1.0);
  EXPECT_DOUBLE_EQ(half->step_seconds(shape(1)), 0.001 + 0.04 + 0.01);
  EXPECT_DOUBLE_EQ(half->swap_seconds(1'000'000), 1);
  EXPECT_DOUBLE_EQ(half->load_seconds(100'000), 1);
  Json piecewise = kPiecewise;
  EXPECT_DOUBLE_EQ(make(piecewise)->swap_seconds(100), 0);
  piecewise["kv_bytes_per_token"] = 1000;
  EXPECT_DOUBLE_EQ(make(piecewise)->swap_seconds(16'000'000), 1);
  EXPECT_DOUBLE_EQ(make(piecewise)->load_seconds(16'000'000), 1) << "the speed of the host's memory";
  Json table = kTable;
  table["kv_bytes_per_token"] = 1000;
  EXPECT_DOUBLE_EQ(make(table)->swap_seconds(16'000'000), 1);
  EXPECT_DOUBLE_EQ(make(table)->load_seconds(3'000'000), 1);
}

TEST(CostEdges, CurvesAtBetweenAndBeyondTheirPoints) {
  const auto cost = make(kPiecewise);
  for (auto [tokens, seconds] :
       {std::pair{0, 1.0}, {1, 1.0}, {2, 1.2}, {6, 2.0}, {11, 3.0}, {21, 3.5}, {31, 4.0}, {51, 5.0}})
    EXPECT_NEAR(cost->step_seconds(shape(tokens)), seconds, 1e-12) << tokens;
  Json one = kPiecewise;
  one["tokens"] = {{"at", {5}}, {"seconds", {2}}};
  for (int64_t tokens : {1, 5, 50})
    EXPECT_DOUBLE_EQ(make(one)->step_seconds(shape(tokens)), 2) << "one point is a constant";
  Json all = kPiecewise;
  all["outputs"] = {{"at", {0, 2}}, {"seconds", {0, 0.5}}}, all["keys"] = {{"at", {0, 10}}, {"seconds", {0, 100}}},
  all["pairs"] = {{"at", {0, 4}}, {"seconds", {0, 8000}}};
  all["slowdown"] = 2;
  EXPECT_DOUBLE_EQ(make(all)->step_seconds(shape(1, 5, 1, 2)), 2 * (1 + 0.25 + 50 + 4000));
  Json nothing = kPiecewise;
  nothing["tokens"] = {{"at", {1, 2}}, {"seconds", {0, 0}}};
  EXPECT_DOUBLE_EQ(make(nothing)->step_seconds(shape(1)), 1e-9) << "no step takes no time";
}

TEST(CostEdges, TablesAtBetweenAndBeyondTheirRows) {
  const auto cost = make(kTable);
  for (auto [tokens, keys, seconds] : {std::tuple{0, 0, 1.0},
                                       {1, 0, 1.0},
                                       {1, 100, 2.0},
                                       {11, 0, 3.0},
                                       {11, 100, 6.0},
                                       {21, 0, 3.5},
                                       {21, 50, 5.25},
                                       {31, 100, 8.0},
                                       {51, 0, 5.0},
                                       {1, 200, 3.0}})
    EXPECT_NEAR(cost->step_seconds(shape(tokens, keys)), seconds, 1e-12) << tokens << " " << keys;
  const auto one =
      make({{"kind", "table"}, {"tokens", {7}}, {"keys", {3}}, {"seconds", Json::array({Json::array({0.5})})}});
  for (int64_t tokens : {1, 7, 70}) EXPECT_DOUBLE_EQ(one->step_seconds(shape(tokens, tokens)), 0.5);
}

TEST(CostEdges, ListShapes) {
  Json json = kTable;
  json["tokens"] = {1, 11, 11};
  EXPECT_EQ(refused(json), "file: cost model's grid must be ascending");
  json = kTable;
  json["keys"] = {100, 0};
  EXPECT_EQ(refused(json), "file: cost model's grid must be ascending");
  json = kTable;
  json.erase("seconds");
  EXPECT_NE(refused(json).find("one row for each of its 3 tokens"), std::string::npos);
  json["seconds"] = {{1, 2}, {3, 6}};
  EXPECT_NE(refused(json).find("one row for each of its 3 tokens"), std::string::npos);
  json["seconds"] = {{1, 2}, {3, 6}, {4}};
  EXPECT_NE(refused(json).find("rows must have 2 seconds"), std::string::npos);
  for (const Json& bad : {Json(0), Json(1e5), Json("1"), Json(-1)}) {
    json["seconds"] = {{1, 2}, {3, 6}, Json::array({4, bad})};
    EXPECT_NE(refused(json).find("must be above 0 and below 1e5"), std::string::npos) << bad;
  }
  json["seconds"] = {{1, 2}, {3, 6}, {4, 99999}};
  EXPECT_EQ(refused(json), "");
  Json curve = kPiecewise;
  curve["tokens"]["at"] = {1, 11, 11};
  EXPECT_EQ(refused(curve), "file: tokens: cost model's 'at' must be ascending");
  curve["tokens"]["at"] = {1, 11};
  EXPECT_NE(refused(curve).find("'seconds' and 'at' must have equal length"), std::string::npos);
  curve["tokens"]["at"] = Json::array();
  EXPECT_NE(refused(curve).find("a list of 1 to 4096 numbers"), std::string::npos);
  curve["tokens"] = 5;
  EXPECT_NE(refused(curve).find("must be an object"), std::string::npos);
  for (size_t count : {4096, 4097}) {
    std::vector<double> at(count), seconds(count, 1);
    for (size_t i = 0; i < count; ++i) at[i] = static_cast<double>(i);
    curve["tokens"] = {{"at", at}, {"seconds", seconds}};
    EXPECT_EQ(refused(curve).empty(), count == 4096);
  }
}

TEST(CostEdges, FilesAreReadUpToSixteenMegabytes) {
  std::string path = testing::TempDir() + "/cost_edges_XXXXXX";
  const int made = ::mkstemp(path.data());
  const std::string text = kPiecewise.dump();
  for (size_t size : {size_t{16} << 20, (size_t{16} << 20) + 1}) {
    std::ofstream(path) << text << std::string(size - text.size(), ' ');
    const auto cost = load_cost_model(path);
    EXPECT_EQ(cost.ok(), size == size_t{16} << 20);
    if (!cost.ok()) {
      EXPECT_NE(cost.error().message.find("larger than 16 MB"), std::string::npos);
    }
  }
  ::close(made);
  ::unlink(path.c_str());
  EXPECT_NE(load_cost_model("/nowhere")
                .error()
                .message.find("no file /nowhere; built-in models: llama3-70b-8xa800, llama-7b-a100, "),
            std::string::npos);
}

TEST(CostEdges, PrefillCostIsTheSumOfItsChunks) {
  const auto cost = make(kAnalytic);
  for (auto [count, chunk] : {std::pair{1, 10}, {10, 10}, {11, 10}, {25, 10}, {30, 10}}) {
    double expected = 0;
    for (int64_t first = 0; first < count; first += chunk) {
      StepShape one;
      one.add(first, std::min<int64_t>(chunk, count - first), true);
      expected += cost->step_seconds(one);
    }
    EXPECT_NEAR(cost->prefill_seconds(count, chunk), expected, 1e-12);
  }
  EXPECT_EQ(cost->prefill_seconds(0, 10), 0);
}

TEST(LearnedCost, LoadSpeedIsLearnedAndSlowlyForgotten) {
  auto cost = make_learned_cost();
  const double first = 2e-4 + 1000 * 1e-4;
  EXPECT_DOUBLE_EQ(cost->load_seconds(1000), first);
  EXPECT_DOUBLE_EQ(cost->load_seconds(0), 2e-4);
  EXPECT_DOUBLE_EQ(cost->swap_seconds(100'000), 1);
  cost->observe_load(0, 50);
  EXPECT_DOUBLE_EQ(cost->load_seconds(1000), first) << "nothing was loaded";
  cost->observe_load(100, 2e-4 + 100 * 5e-4);
  EXPECT_NEAR(cost->load_seconds(1000), 2e-4 + 1000 * (0.75e-4 + 0.25 * 5e-4), 1e-12);
  cost->observe(shape(0, 10), 1);
  EXPECT_NEAR(cost->load_seconds(1000), 2e-4 + 1000 * 2e-4, 1e-12) << "an empty step is ignored";
  cost->observe(shape(1, 10), 0.01);
  EXPECT_NEAR(cost->load_seconds(1000), 2e-4 + 1000 * (2e-4 - 1e-3 * 1e-4), 1e-12);
  cost->observe_load(1, 1e-5);
  EXPECT_NEAR(cost->load_seconds(1000), 2e-4 + 1000 * 0.75 * (2e-4 - 1e-3 * 1e-4), 1e-12)
      << "faster than the overhead: 0 per token";
}

TEST(LearnedCost, PredictsBeforeTheFirstStepAndForAnyStep) {
  auto cost = make_learned_cost();
  EXPECT_NEAR(cost->step_seconds(shape(100, 10'000)), 5e-3 + 1e-1 + 1e-3, 1e-12);
  for (int i = 0; i < 200; ++i) cost->observe(shape(1 + i % 7, 50 * i), 0);
  EXPECT_GE(cost->step_seconds(shape(1)), 1e-6);
  EXPECT_LT(cost->step_seconds(shape(1)), 1e-4);
}

// Variances were bounded but covariances were not: after some thousand identical steps, a few different ones made a
// step cost 1e30 seconds.
TEST(LearnedCost, AdaptsAfterManyIdenticalSteps) {
  auto steady = make_learned_cost();
  for (int i = 0; i < 5000; ++i) steady->observe(shape(8, 1000), 0.02);  // no new information for a long time
  EXPECT_NEAR(steady->step_seconds(shape(8, 1000)), 0.02, 1e-6);
  for (int i = 0; i < 3000; ++i) steady->observe(shape(1 + i % 64, 100 * (i % 50)), 0.001 + 0.0002 * (1 + i % 64));
  EXPECT_NEAR(steady->step_seconds(shape(32, 2000)), 0.0074, 4e-4) << "another machine now";
}

TEST(CostFitEdges, ValidMeasurements) {
  std::vector<MeasuredStep> steps;
  for (int64_t i = 1; i <= 8; ++i)
    steps.push_back({shape(i * 4, i * 100, i % 3, static_cast<double>(i * 50)), 0.01 * static_cast<double>(i)});
  EXPECT_TRUE(fit_cost_model(steps).ok()) << "eight are enough";
  EXPECT_NE(fit_cost_model(std::span(steps).first(7)).error().message.find("7 measured steps are too few"),
            std::string::npos);
  for (double seconds : {0.0, -1.0, 1e5, std::numeric_limits<double>::quiet_NaN()}) {
    auto bad = steps;
    bad[3].seconds = seconds;
    EXPECT_FALSE(fit_cost_model(bad).ok()) << seconds;
  }
  auto none = steps;
  none[5].shape.tokens = 0;
  EXPECT_FALSE(fit_cost_model(none).ok());
  const auto plain = Json::parse(*fit_cost_model(steps));
  for (const char* name : {"kv_bytes_per_token", "swap_bandwidth", "disk_bandwidth", "disk_overhead"})
    EXPECT_FALSE(plain.contains(name)) << name;
  const auto full = Json::parse(*fit_cost_model(steps, {10, 1}, {1, 100}));
  EXPECT_EQ(full["kv_bytes_per_token"], 10);
  EXPECT_EQ(full["swap_bandwidth"], 1e6) << "within what the file may hold";
  EXPECT_EQ(full["disk_bandwidth"], 1e5);
  EXPECT_EQ(full["disk_overhead"], 10);
  EXPECT_EQ(plain["tokens"]["at"].front(), 1);
  EXPECT_EQ(plain["tokens"]["at"].back(), 32) << "up to the largest measurement";
  EXPECT_EQ(plain["outputs"]["at"], (Json{0, 2})) << "of 0, 4 ... none is below the most: the most";
  EXPECT_EQ(plain["keys"]["at"], (Json{0, 200, 800}));
  EXPECT_EQ(plain["pairs"]["at"], (Json{0, 400}));
  for (const char* name : {"outputs", "keys", "pairs"}) EXPECT_EQ(plain[name]["seconds"].front(), 0) << name;
}

TEST(CostFitEdges, RecoversCurvesAtTheirKnots) {
  const auto truth =
      make({{"kind", "piecewise"},
            {"tokens", {{"at", {1, 2, 4, 8, 16, 32, 64}}, {"seconds", {0.01, 0.011, 0.012, 0.02, 0.03, 0.06, 0.2}}}},
            {"outputs", {{"at", {0, 4, 16}}, {"seconds", {0, 0.001, 0.01}}}}});
  std::vector<MeasuredStep> steps;
  for (uint64_t i = 0; i < 400; ++i) {
    const StepShape one = shape(1 + static_cast<int64_t>(philox_uniform(1, 1, i) * 64), 0,
                                static_cast<int64_t>(philox_uniform(1, 2, i) * 17));
    steps.push_back({one, truth->step_seconds(one)});
  }
  const auto fitted = parse_cost_model(*fit_cost_model(steps), "fit");
  ASSERT_TRUE(fitted.ok());
  const auto errors = cost_errors(**fitted, steps);
  EXPECT_EQ(errors.size(), steps.size());
  for (double error : errors) ASSERT_LT(error, 0.005);
}

}  // namespace
}  // namespace millrace
