// Trained policies: against an independent script in float64 (tests/golden/make_keep_policy.py), and files that are
// refused.
#include "prompt/keep_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "prompt/policy_files_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

TEST(KeepPolicy, GivesTheProbabilitiesOfTheReference) {
  const GoldenPolicy golden(MILLRACE_SOURCE_DIR);
  const auto file = PolicyFile::open(golden.path, {"policy", "shot", "token"});
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const std::string name : {"policy", "shot", "token"}) {
    ASSERT_EQ((*file)->network(name).inputs(), 19);
    const std::vector<double> expected = golden.expected[name];
    ASSERT_EQ(expected.size(), golden.vectors.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR((*file)->network(name).keep_probability(golden.vectors[i]), expected[i], 1e-12) << name << " " << i;
  }
  EXPECT_TRUE((*file)->check_width("shot", 19).ok());
  const auto wrong = (*file)->check_width("shot", 20);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().kind, ErrorKind::user);
  EXPECT_NE(wrong.error().message.find("reads vectors of 19 values, the model's have 20"), std::string::npos);
}

std::string opening_error(const std::vector<PolicyTensor>& tensors) {
  const TemporaryPolicy file(tensors);
  const auto opened = PolicyFile::open(file.path, {"policy"});
  return opened.ok() ? "" : opened.error().message.substr(file.path.size());
}

TEST(KeepPolicy, RefusesOtherFiles) {
  const PolicyTensor first = {"policy.0.weight", {3, 2}, {1, 2, 3, 4, 5, 6}};
  const PolicyTensor second = {"policy.2.weight", {1, 3}, {1, 1, 1}};
  EXPECT_EQ(opening_error({first, second}), "");
  EXPECT_EQ(opening_error({second}), " has no tensor policy.0.weight; it is not a policy of this member");
  EXPECT_EQ(opening_error({first}), " has no tensor policy.2.weight; it is not a policy of this member");
  EXPECT_EQ(opening_error({first, {"policy.2.weight", {1, 2}, {1, 1}}}),
            ": tensor policy.2.weight reads 2 values, policy.0.weight has 3 rows");
  EXPECT_EQ(opening_error({first, {"policy.2.weight", {3, 3}, std::vector<float>(9)}}),
            ": tensor policy.2.weight has 3 rows; a policy has 1 or 2");
  EXPECT_EQ(opening_error({first, second, {"policy.0.bias", {2}, {1, 1}}}),
            ": tensor policy.0.bias has 2 values, its matrix has 3 rows");
  EXPECT_EQ(opening_error({{"policy.0.weight", {6}, std::vector<float>(6)}, second}),
            ": tensor policy.0.weight has 1 dimensions, not 2");
  EXPECT_EQ(opening_error({first, {"policy.2.weight", {1, 3}, {1, NAN, 1}}}),
            ": tensor policy.2.weight holds NaN or infinity");
  EXPECT_FALSE(PolicyFile::open("/nonexistent/policy.safetensors", {"policy"}).ok());
}

}  // namespace
}  // namespace millrace
