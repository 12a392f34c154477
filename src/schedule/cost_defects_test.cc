// Error messages for invalid cost models, and the cost of a prefill's last chunk.
#include <gtest/gtest.h>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

std::string refused(const std::string& text) {
  const auto cost = parse_cost_model(text, "file");
  return cost.ok() ? "" : cost.error().message;
}

TEST(CostDefects, UnreadableFilesAndUnknownKinds) {
  for (const char* text : {"", "{", "[]", "[1]", "1", "\"table\"", "null"})
    EXPECT_EQ(refused(text), "file: cost model must be a JSON object") << text;
  for (const char* text : {"{}", R"({"kind": "guess"})", R"({"kind": 1})", R"({"kind": ["piecewise"]})"})
    EXPECT_EQ(refused(text), "file: cost model's 'kind' must be \"analytic\", \"piecewise\", \"table\" or \"workers\"")
        << text;
  EXPECT_EQ(refused(R"({"kind": "piecewise"})"), "file: cost model has no 'tokens'");
}

TEST(CostDefects, TableRowsMustBeAList) {
  const std::string grid = R"({"kind": "table", "tokens": [0, 10], "keys": [0], "seconds": )";
  EXPECT_EQ(refused(grid + "[[1], [2]]}"), "") << "a grid may start at 0";
  for (const char* rows : {R"({"a": [1], "b": [2]})", "[[1]]", "2", "\"ab\""})
    EXPECT_EQ(refused(grid + rows + "}"), "file: cost model's 'seconds' must have one row for each of its 2 tokens")
        << rows;
  EXPECT_EQ(refused(R"({"kind": "table", "tokens": [-0.5, 10], "keys": [0], "seconds": [[1], [2]]})"),
            "file: cost model's 'tokens' must be between 0 and 1000000000, got -0.5");
}

TEST(CostDefects, TableWithoutSwapSpeedMovesInNoTime) {
  const auto cost = parse_cost_model(R"({"kind": "table", "tokens": [1], "keys": [0], "seconds": [[1]]})", "file");
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ((*cost)->swap_seconds(1000), 0);
  EXPECT_EQ((*cost)->load_seconds(1000), 0);
}

// A chunk takes one second, a sampled one ten more.
TEST(CostDefects, OnlyTheLastPrefillChunkIsSampled) {
  const auto cost = parse_cost_model(R"({"kind": "piecewise", "tokens": {"at": [1], "seconds": [1]},
                                         "outputs": {"at": [0, 1], "seconds": [0, 10]}})",
                                     "file");
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  for (auto [count, seconds] : {std::pair{0, 0}, {1, 11}, {9, 11}, {10, 11}, {11, 12}, {20, 12}, {21, 13}})
    EXPECT_EQ((*cost)->prefill_seconds(count, 10), seconds) << count;
}

}  // namespace
}  // namespace millrace
