// Conversion of golden models, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "loader/test_bytes.h"
#include "model_runner.h"
#include "models/convert/convert.h"
#include "test_paths.h"

namespace millrace {

namespace fs = std::filesystem;
using testing::TestRunner;

inline fs::path golden() { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden"; }

// A temporary folder, removed with the object.
class Scratch {
 public:
  std::string operator/(const std::string& name) const { return folder_.path(name); }

 private:
  testing::TemporaryFolder folder_;
};

inline Result<ConvertReport> convert(const std::string& from, const std::string& to, const std::string& format = "",
                                     const std::string& tokenizer = "", bool force = false) {
  ThreadPool pool(2);
  return convert_model({from, to, format, tokenizer, force, {}}, pool);
}

// Converts or fails the test.
inline void make(const std::string& from, const std::string& to, const std::string& format = "") {
  auto report = convert(from, to, format);
  ASSERT_TRUE(report.ok()) << from << " -> " << to << ": " << report.error().message;
  EXPECT_GT(report->tensors, 0);
  EXPECT_TRUE(report->left_out.empty()) << report->left_out.front();
}

inline std::vector<float> logits_of(const std::string& path, const std::vector<TokenId>& tokens, int64_t context = 0) {
  auto runner = TestRunner::load(path, {.context = context});
  EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
  return runner.ok() ? (*runner)->logits(tokens) : std::vector<float>();
}

// max |difference| / max |logit|
inline double conversion_error(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size() || want.empty()) return INFINITY;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return worst / largest;
}

}  // namespace millrace
