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
  const fs::path from = golden("gguf_types/iq3/model.gguf");  // rows of 256 values
  const ModelFiles plain = convert(from, "plain.gguf", "f32"), scaled = convert(from, "scaled.gguf", "nvfp4");
  int64_t matrices = 0;
  for (const StoredTensor& stored : scaled.tensors) {
    if (stored.tensor.format != find_format("nvfp4")) continue;
    if (stored.name == "token_embd.weight") {
      EXPECT_TRUE(stored.scales.values.empty());
      continue;
    }
    ++matrices;
    ASSERT_EQ(stored.scales.values.size(), 1u) << stored.name;
    const std::vector<float> want = values_of(*plain.find(stored.name)), got = values_of(stored);
    double error = 0, power = 0;
    float largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      power += std::pow(double{want[i]}, 2);
      largest = std::max(largest, std::fabs(want[i]));
    }
    EXPECT_FLOAT_EQ(stored.scales.values.front() * stored.tensor.format->matrix_limit, largest) << stored.name;
    EXPECT_LT(std::sqrt(error / power), 0.11) << stored.name;
  }
  EXPECT_EQ(matrices, 7);
  EXPECT_FALSE(scaled.find("blk.0.attn_q.scale"));  // it is attached
}

}  // namespace
}  // namespace millrace
