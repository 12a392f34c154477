// The arithmetic of predictions, and the file of measured costs.
#include "offload/costs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

TEST(OffloadCosts, PassesAreInterpolatedAndScaledByBytes) {
  const std::vector<PassCost> costs = {{1, 1e-10}, {16, 2.5e-10}, {64, 1e-9}};
  EXPECT_DOUBLE_EQ(pass_seconds(costs, 1, 1e9), 0.1);
  EXPECT_DOUBLE_EQ(pass_seconds(costs, 16, 2e9), 0.5);
  EXPECT_NEAR(pass_seconds(costs, 40, 1e9), 0.625, 1e-12);  // half way from 16 to 64
  EXPECT_NEAR(pass_seconds(costs, 128, 1e9), 2, 1e-12);     // as long for each token as 64
}

// A pass that reads takes as long as the disk, or as its computation and the work of reading.
TEST(OffloadCosts, ReadsAndComputationOverlap) {
  const OffloadCosts costs{.read_bytes = 1e9, .read_work = 1e-10};
  EXPECT_DOUBLE_EQ(overlapped_seconds(costs, 0.1, 1e9), 1);
  EXPECT_DOUBLE_EQ(overlapped_seconds(costs, 2, 1e9), 2.1);
  EXPECT_DOUBLE_EQ(overlapped_seconds(costs, 2, 0), 2);
}

TEST(OffloadCosts, CountsHitsAndDistinctExperts) {
  EXPECT_DOUBLE_EQ(expert_hits(8, 0.25, 0), 0.25);
  EXPECT_DOUBLE_EQ(expert_hits(8, 1, 1.5), 1);
  EXPECT_NEAR(expert_hits(4, 0.5, 1), (1 + 0.5) / (1 + 0.5 + 1.0 / 3 + 0.25), 1e-12);
  EXPECT_NEAR(expert_hits(4, 0.375, 1), (1 + 0.25) / (1 + 0.5 + 1.0 / 3 + 0.25), 1e-12);
  for (const double skew : {0.0, 0.4, 1.0, 2.5})
    EXPECT_NEAR(expert_skew_of(128, 0.25, expert_hits(128, 0.25, skew)), skew, 1e-6);
  EXPECT_DOUBLE_EQ(expert_skew_of(128, 0.25, 0.1), 0);  // served less than its share: none
  EXPECT_DOUBLE_EQ(distinct_experts(8, 2, 1), 2);
  EXPECT_NEAR(distinct_experts(8, 2, 2), 3.5, 1e-12);
  EXPECT_NEAR(distinct_experts(8, 2, 1000), 8, 1e-9);
  EXPECT_EQ(distinct_experts(0, 0, 5), 0);
}

TEST(OffloadCosts, AreReadBackForTheSameKeyOnly) {
  const auto path = std::filesystem::temp_directory_path() / ("costs_test." + std::to_string(getpid()));
  const OffloadCosts costs{.decode = {{1, 3e-11}, {16, 6e-11}},
                           .prefill = {{64, 2e-10}},
                           .read_bytes = 2.5e9,
                           .expert_bytes = 8e8,
                           .cached_bytes = 7e9,
                           .write_bytes = 1e9,
                           .key_bytes = 3e10,
                           .read_work = 1.25e-11};
  ASSERT_TRUE(write_costs(path.string(), "a machine", costs).ok());
  const auto read = read_costs(path.string(), "a machine");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->measured);
  ASSERT_EQ(read->decode.size(), 2u);
  EXPECT_EQ(read->decode[1].rows, 16);
  EXPECT_EQ(read->decode[1].seconds_per_byte, 6e-11);
  EXPECT_EQ(read->prefill.size(), 1u);
  EXPECT_EQ(read->read_bytes, 2.5e9);
  EXPECT_EQ(read->key_bytes, 3e10);
  EXPECT_EQ(read->read_work, 1.25e-11);
  EXPECT_FALSE(read_costs(path.string(), "another machine").ok());
  for (const char* text : {"", "{}", "[1]", R"({"version": 1, "key": "a machine", "decode": [[1, -1]]})",
                           R"({"version": "1", "key": "a machine"})"}) {
    std::ofstream(path) << text;
    EXPECT_FALSE(read_costs(path.string(), "a machine").ok()) << text;
  }
  std::filesystem::remove(path);
  EXPECT_FALSE(read_costs(path.string(), "a machine").ok());
}

}  // namespace
}  // namespace millrace
