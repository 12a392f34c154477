// Percentiles between ranks, log-probabilities on a full disk, and a scorer's context at its limit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "evaluate/divergence.h"
#include "evaluate/logits_file.h"
#include "evaluate/scorer.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

DivergenceSummary summary_of(const std::vector<double>& values) {
  std::vector<TokenDivergence> tokens;
  for (double kl : values) tokens.push_back({.kl = kl});
  return summarize(tokens);
}

// Ranks begin at 0 and end with the largest value; between two of them the line decides.
TEST(FiguresEdges, PercentilesBetweenTwoRanks) {
  const DivergenceSummary two = summary_of({10, 0});
  EXPECT_NEAR(two.kl_median, 5, 1e-12);
  EXPECT_NEAR(two.kl_p90, 9, 1e-12);
  EXPECT_NEAR(two.kl_p99, 9.9, 1e-12);
  const DivergenceSummary six = summary_of({32, 1, 16, 2, 8, 4});
  EXPECT_NEAR(six.kl_median, 6, 1e-12);
  EXPECT_NEAR(six.kl_p90, 24, 1e-12);
  EXPECT_NEAR(six.kl_p99, 31.2, 1e-12);
  std::vector<double> many;
  for (int i = 0; i < 102; ++i) many.push_back(i * i);
  const DivergenceSummary all = summary_of(many);
  EXPECT_NEAR(all.kl_median, (50 * 50 + 51 * 51) / 2.0, 1e-9);
  EXPECT_NEAR(all.kl_p90, 90 * 90 + 0.9 * (91 * 91 - 90 * 90), 1e-9);
  EXPECT_NEAR(all.kl_p99, 99 * 99 + 0.99 * (100 * 100 - 99 * 99), 1e-9);
  EXPECT_EQ(all.kl_max, 101 * 101);
}

// The part file is a link to a device that takes no bytes.
TEST(FiguresEdges, AFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  const std::string path = ::testing::TempDir() + "full_logits_" + std::to_string(getpid()), part = path + ".part";
  fs::remove(part);
  fs::create_symlink("/dev/full", part);
  {
    auto writer = LogitsWriter::create(path, LogitsElement::f32, 1 << 16, 1);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const std::vector<float> row(1 << 16, -1.0f);
    const auto added = writer->add(0, row.data());
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().kind, ErrorKind::resource);
    EXPECT_EQ(added.error().message, part + ": cannot be written: No space left on device");
    EXPECT_FALSE(writer->finish().ok());  // the row does not count
  }
  EXPECT_FALSE(fs::is_symlink(part));
  fs::create_symlink("/dev/full", part);
  const float small[] = {-1};
  auto writer = LogitsWriter::create(path, LogitsElement::f32, 1, 1);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->add(0, small).ok());  // waits in a buffer
  const auto done = writer->finish();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().kind, ErrorKind::resource);
  EXPECT_EQ(done.error().message, path + ": cannot be written: No space left on device");
  EXPECT_FALSE(fs::is_symlink(part));
  EXPECT_FALSE(fs::exists(path));
}

// A folder is where the file should be.
TEST(FiguresEdges, AFileThatCannotGetItsName) {
  const fs::path path = ::testing::TempDir() + "logits_folder_" + std::to_string(getpid());
  fs::create_directories(path / "inside");
  const float row[] = {-1};
  auto writer = LogitsWriter::create(path, LogitsElement::f16, 1, 1);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->add(0, row).ok());
  const auto done = writer->finish();
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, path.string() + ": cannot be written: Is a directory");
  fs::remove_all(path);
}

TEST(FiguresEdges, AScorersContextAtItsLimit) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 64});
  ASSERT_TRUE(model.ok());
  const auto message = [&](int64_t context) {
    const auto made = Scorer::create(*model, {.threads = 1, .context = context});
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_EQ(message(1 << 24), "context: the model was loaded for 64 tokens, 16777216 requested");
  EXPECT_EQ(message((1 << 24) + 1), "context: must be 2 to 16777216 tokens, is 16777217");
  EXPECT_EQ(message(65), "context: the model was loaded for 64 tokens, 65 requested");
  EXPECT_EQ(message(64), "");
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(1), "context: must be 2 to 16777216 tokens, is 1");
}

}  // namespace
}  // namespace millrace
