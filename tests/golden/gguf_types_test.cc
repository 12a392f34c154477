// GGUF files of the ternary types, the I-quants of 1 to 3 bits, NVFP4, Q1_0 and Q2_0 against the logits of the values
// that llama.cpp's own gguf package reads from them (make_gguf_types.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "golden/expanded.h"
#include "golden/expected.h"
#include "model_runner.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::TestRunner;

struct TypesCase {
  const char* name;
  std::set<std::string_view> formats;
};

class GgufTypes : public ::testing::TestWithParam<TypesCase> {
 protected:
  fs::path folder() const { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/gguf_types" / GetParam().name; }
  ModelFiles open() const {
    auto files = open_model_files((folder() / "model.gguf").string());
    EXPECT_TRUE(files.ok()) << files.error().message;
    return std::move(*files);
  }
  double error_of(ModelFiles files) const {
    auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    const testing::Expected expected = testing::read_expected(folder());
    return testing::relative_error((*runner)->logits(expected.tokens), expected.logits);
  }
};

TEST_P(GgufTypes, HaveTheFormatOfTheirName) {
  std::set<std::string_view> found;
  for (const StoredTensor& tensor : open().tensors) {
    ASSERT_TRUE(tensor.tensor.format) << tensor.name;
    if (tensor.tensor.rank > 1) found.insert(tensor.tensor.format->name);
  }
  EXPECT_EQ(found, GetParam().formats);
}

TEST_P(GgufTypes, StandForTheValuesOfTheReference) {
  ModelFiles files = open();
  testing::expand_blocks(files);
  EXPECT_LT(error_of(std::move(files)), 1e-4);
}

// As they run, with inputs rounded to 8 bits.
TEST_P(GgufTypes, RunOnTheKernelsOfTheirFormat) { EXPECT_LT(error_of(open()), 0.05); }

INSTANTIATE_TEST_SUITE_P(Types, GgufTypes,
                         ::testing::Values(TypesCase{"ternary", {"tq1_0", "tq2_0"}},
                                           TypesCase{"iq1", {"iq1_s", "iq1_m"}},
                                           TypesCase{"iq2", {"iq2_xxs", "iq2_xs", "iq2_s"}},
                                           TypesCase{"iq3", {"iq3_xxs", "iq3_s"}}, TypesCase{"nvfp4", {"nvfp4"}},
                                           TypesCase{"few_bits", {"q1_0", "q2_0"}}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace millrace
