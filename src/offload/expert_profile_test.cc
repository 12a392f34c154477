#include "offload/expert_profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

class ExpertProfiles : public testing::Test {
 protected:
  ExpertProfiles() { std::filesystem::create_directories(path_.parent_path()); }
  ~ExpertProfiles() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / "profile.experts";
};

TEST_F(ExpertProfiles, AreReadAsTheyWereWritten) {
  const ExpertProfile profile{.tokens = 12, .uses = {{}, {3, 0, 21}, {8, 8, 8}}};
  ASSERT_TRUE(write_expert_profile(path_, profile).ok());
  const auto read = read_expert_profile(path_);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->tokens, profile.tokens);
  EXPECT_EQ(read->uses, profile.uses);
}

TEST_F(ExpertProfiles, OtherFilesAreRefusedByName) {
  for (const char* text :
       {"", "[]", "{}", R"({"version": 2, "tokens": 1, "uses": []})", R"({"version": 1, "tokens": -1, "uses": []})",
        R"({"version": 1, "tokens": 1, "uses": 3})", R"({"version": 1, "tokens": 1, "uses": [[1, -1]]})",
        R"({"version": 1, "tokens": 1, "uses": [[1.5]]})", R"({"version": 1, "tokens": 1, "uses": [1]})",
        R"({"version": 1, "tokens": 1, "uses": [[1152921504606846976]]})"}) {
    write(text);
    const auto read = read_expert_profile(path_);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().kind, ErrorKind::user);
    EXPECT_TRUE(read.error().message.starts_with(path_.string() + ": ")) << read.error().message;
  }
  std::filesystem::remove(path_);
  EXPECT_NE(read_expert_profile(path_).error().message.find("cannot be read"), std::string::npos);
}

TEST_F(ExpertProfiles, TheMostUsedExpertsAreHot) {
  const std::vector<int64_t> uses = {5, 9, 5, 0, 5};
  using Cold = std::vector<bool>;
  EXPECT_EQ(cold_by_uses(uses, 0), Cold({true, true, true, true, true}));
  EXPECT_EQ(cold_by_uses(uses, 0.2), Cold({true, false, true, true, true}));
  EXPECT_EQ(cold_by_uses(uses, 0.4), Cold({false, false, true, true, true}));  // the first of three equal ones
  EXPECT_EQ(cold_by_uses(uses, 0.8), Cold({false, false, false, true, false}));
  EXPECT_EQ(cold_by_uses(uses, 1), Cold({false, false, false, false, false}));
  EXPECT_TRUE(cold_by_uses({}, 0.5).empty());
}

TEST_F(ExpertProfiles, ColdShareCountsUsesOfAllLayers) {
  const ExpertProfile profile{.tokens = 10, .uses = {{}, {8, 2}, {1, 9}}};
  EXPECT_DOUBLE_EQ(cold_share(profile, 0.5), 3.0 / 20);
  EXPECT_DOUBLE_EQ(cold_share(profile, 1), 0);
  EXPECT_DOUBLE_EQ(cold_share(profile, 0), 1);
  EXPECT_DOUBLE_EQ(cold_share({}, 0), 0);
}

}  // namespace
}  // namespace millrace
