// Conversion to and from NVFP4 in GGUF files, whose matrices have a scale each (models/convert/matrix_scales.h): blocks
// and scales are copied where they can be, and new ones bring the largest value of each matrix to the format's limit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "formats/format.h"
#include "golden/expected.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "models/convert/convert.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::TestRunner;

class MatrixScales : public ::testing::Test {
 protected:
  MatrixScales() {
    std::string pattern = (fs::temp_directory_path() / "millrace_scales_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~MatrixScales() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  ModelFiles convert(const fs::path& from, const char* name, const std::string& format = "") {
    ThreadPool pool(2);
    const auto report = convert_model({from, folder_ / name, format, "", true, {}}, pool);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return open(folder_ / name);
  }
  static ModelFiles open(const fs::path& path) {
    auto files = open_model_files(path);
    EXPECT_TRUE(files.ok()) << files.error().message;
    return std::move(*files);
  }
  static std::vector<float> logits(ModelFiles files, const std::vector<TokenId>& tokens) {
    auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    return (*runner)->logits(tokens);
  }
  static fs::path golden(const char* name) { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / name; }

  fs::path folder_;
};

std::vector<float> values_of(const StoredTensor& stored) {
  std::vector<float> values(static_cast<size_t>(stored.tensor.values()));
  stored.tensor.format->decode(stored.tensor.data, values.data(), stored.tensor.values());
  if (stored.scales.values.empty()) return values;
  const int64_t each = stored.tensor.values() / std::ssize(stored.scales.values);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= stored.scales.values[i / static_cast<size_t>(each)];
  return values;
}

TEST_F(MatrixScales, CheckpointsKeepBlocksAndScales) {
  const fs::path from = golden("quantized/nvfp4");
  const ModelFiles before = open(from);
  ModelFiles after = convert(from, "there.gguf");
  const StoredTensor &a = *before.find("model.layers.1.mlp.down_proj.weight"),
                     &b = *after.find("blk.1.ffn_down.weight");
  EXPECT_EQ(b.tensor.format, find_format("nvfp4"));
  EXPECT_EQ(b.scales.values, a.scales.values);
  ASSERT_EQ(b.tensor.bytes, a.tensor.bytes);
  EXPECT_EQ(std::memcmp(a.tensor.data, b.tensor.data, static_cast<size_t>(a.tensor.bytes)), 0);
  const ModelFiles again = convert(folder_ / "there.gguf", "again.gguf");
  for (const StoredTensor& stored : after.tensors) {
    const StoredTensor& copy = *again.find(stored.name);
    EXPECT_EQ(copy.scales.values, stored.scales.values) << stored.name;
    ASSERT_EQ(copy.tensor.bytes, stored.tensor.bytes);
    EXPECT_EQ(std::memcmp(copy.tensor.data, stored.tensor.data, static_cast<size_t>(copy.tensor.bytes)), 0);
  }
  const auto expected = testing::read_expected(from);
  const std::vector<float> want = logits(open(from), expected.tokens);
  EXPECT_LT(testing::relative_error(logits(std::move(after), expected.tokens), want), 1e-5);
}

// Small values would have subnormal scales.
TEST_F(MatrixScales, NewOnesBringMatricesToTheLimit) {
  const ModelFiles plain = convert(golden("qwen3moe"), "plain.gguf", "f32");
  ModelFiles scaled = convert(golden("qwen3moe"), "scaled.gguf", "nvfp4");
  int64_t experts = 0;
  for (const StoredTensor& stored : scaled.tensors) {
    if (stored.tensor.format != find_format("nvfp4")) continue;
    const StoredTensor& source = *plain.find(stored.name);
    const int64_t stacked = stored.tensor.rank > 2 ? stored.tensor.dims[0] : 1;
    experts = std::max(experts, stacked);
    ASSERT_EQ(std::ssize(stored.scales.values), stacked) << stored.name;
    const std::vector<float> want = values_of(source), got = values_of(stored);
    const size_t each = want.size() / static_cast<size_t>(stacked);
    for (size_t first = 0; first < want.size(); first += each) {
      double error = 0, power = 0;
      float largest = 0;
      for (size_t i = first; i < first + each; ++i) {
        error += std::pow(double{got[i]} - want[i], 2);
        power += std::pow(double{want[i]}, 2);
        largest = std::max(largest, std::fabs(want[i]));
      }
      EXPECT_FLOAT_EQ(stored.scales.values[first / each] * stored.tensor.format->matrix_limit, largest) << stored.name;
      EXPECT_LT(std::sqrt(error / power), 0.1) << stored.name;
    }
  }
  EXPECT_GT(experts, 1);
  // Rounding weights to 4 bits changes the logits of these random models, but not beyond recognition.
  const auto expected = testing::read_expected(golden("qwen3moe"));
  const std::vector<float> want = logits(open(golden("qwen3moe")), expected.tokens);
  EXPECT_LT(testing::relative_error(logits(std::move(scaled), expected.tokens), want), 0.4);
}

}  // namespace
}  // namespace millrace
