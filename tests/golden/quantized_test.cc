// Published quantized checkpoints against the logits of the values that they stand for (make_quantized.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "formats/format.h"
#include "golden/expanded.h"
#include "golden/expected.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "shared_data.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<float>;
using testing::Expected;
using testing::read_expected;
using testing::relative_error;
using testing::TestRunner;

struct QuantizedCase {
  const char* name;
  const char* format;    // of the projections
  double values = 1e-4;  // error of the logits with the decoded values
};

class QuantizedCheckpoints : public ::testing::TestWithParam<QuantizedCase> {
 protected:
  fs::path folder() const { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/quantized" / GetParam().name; }
  ModelFiles open() const {
    auto files = open_model_files(folder().string());
    EXPECT_TRUE(files.ok()) << files.error().message;
    return std::move(*files);
  }
  double error_of(ModelFiles files) const {
    auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    const Expected expected = read_expected(folder());
    return relative_error((*runner)->logits(expected.tokens), expected.logits);
  }
};

TEST_P(QuantizedCheckpoints, HaveTheFormatThatHoldsTheirLevels) {
  const ModelFiles files = open();
  for (int layer : {0, 1})
    for (const char* name : {"self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::string prefix = "model.layers." + std::to_string(layer) + "." + name + ".";
      const StoredTensor* matrix = files.find(prefix + "weight");
      ASSERT_TRUE(matrix) << prefix;
      EXPECT_EQ(matrix->tensor.format, find_format(GetParam().format)) << prefix << matrix->type_name;
    }
  for (const StoredTensor& tensor : files.tensors)  // nothing of the layout is left
    EXPECT_TRUE(tensor.name.ends_with(".weight") || tensor.name.ends_with(".input_order")) << tensor.name;
}

// The values are those of the checkpoint: as F32, only scales that F16 does not hold differ, and codes of NF4 and FP4,
// which are the nearest whole numbers (formats/code_tables.h).
TEST_P(QuantizedCheckpoints, StandForTheValuesOfTheReference) {
  ModelFiles files = open();
  testing::expand_blocks(files);
  EXPECT_LT(error_of(std::move(files)), GetParam().values);
}

// As they run: inputs are rounded to 8 bits in groups of 32, which costs these random models, with heads of 16 and
// peaked attention, up to a twelfth of the largest logit. Any wrong level or scale costs far more than all of it.
TEST_P(QuantizedCheckpoints, RunOnTheKernelsOfTheirFormat) { EXPECT_LT(error_of(open()), 0.1); }

std::vector<float> logits_of(ModelFiles files, const std::vector<TokenId>& tokens) {
  auto runner = TestRunner::load(std::make_shared<const ModelFiles>(std::move(files)), {});
  EXPECT_TRUE(runner.ok()) << runner.error().message;
  return runner.ok() ? (*runner)->logits(tokens) : std::vector<float>();
}

// The values are those of the checkpoint, so that only their scales' and entries' types matter. As indices, those of 9
// bits are multiplied as Q8_0 with inputs of 8 bits, which adds 0.035 for a model as small as this (words: 0.1).
TEST(AdditiveCheckpoints, AqlmStandsForTheValuesOfTheReference) {
  for (const std::string name : {"aqlm_2x8", "aqlm_1x9"}) {
    const fs::path folder = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/quantized" / name;
    auto files = open_model_files(folder.string());
    ASSERT_TRUE(files.ok()) << files.error().message;
    for (const StoredTensor& tensor : files->tensors)
      EXPECT_TRUE(tensor.name.ends_with(".weight") || tensor.name.find(".codebook") != std::string::npos)
          << tensor.name;
    const Expected expected = read_expected(folder);
    if (name == "aqlm_1x9") {
      EXPECT_LT(relative_error(logits_of(*files, expected.tokens), expected.logits), 0.05);
    }
    testing::expand_codebooks(*files);
    EXPECT_LT(relative_error(logits_of(std::move(*files), expected.tokens), expected.logits), 1e-4) << name;
  }
}

// QuIP#: codes of 2 bits stay codes; sums of two are F16, and so are rows that are no whole blocks. Sizes of 12 and 52
// times a power of two, and fused matrices, whose outputs are transformed as one.
TEST(LatticeCheckpoints, QuipSharpStandsForTheValuesOfTheReference) {
  for (const auto& [name, format, error] :
       {std::tuple("quip_sharp_2", "e8p", 1e-4), {"quip_sharp_3", "f16", 2e-3}, {"quip_sharp_4", "f16", 2e-3}}) {
    const fs::path folder = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/quantized" / name;
    auto files = open_model_files(folder.string());
    ASSERT_TRUE(files.ok()) << files.error().message;
    for (const char* matrix : {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.upgate_proj", "mlp.down_proj"}) {
      const std::string prefix = std::string("model.layers.0.") + matrix;
      const StoredTensor* stored = files->find(prefix + ".weight");
      ASSERT_TRUE(stored) << prefix;
      EXPECT_EQ(stored->tensor.format, find_format(format)) << prefix;
      for (const char* part : {".input_scale", ".input_hadamard", ".output_scale", ".output_hadamard"})
        EXPECT_TRUE(files->find(prefix + part)) << prefix << part;
    }
    const Expected expected = read_expected(folder);
    Values first;
    for (const int threads : {1, 3}) {
      auto runner = TestRunner::load(std::make_shared<const ModelFiles>(*files), {.threads = threads});
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      for (const int64_t chunk : {0, 5, 1}) {
        const Values logits = (*runner)->logits(expected.tokens, chunk);
        if (first.empty()) first = logits;
        EXPECT_TRUE(logits == first) << name << " " << threads << " threads, chunks of " << chunk;
      }
    }
    EXPECT_LT(relative_error(first, expected.logits), 0.1) << name;
    testing::expand_blocks(*files);
    EXPECT_LT(relative_error(logits_of(std::move(*files), expected.tokens), expected.logits), error) << name;
  }
}

// Vectors of eight weights are rounded to 8 bits, and so are their inputs, which costs as much as with other formats.
TEST(AdditiveCheckpoints, AqlmRunsAsWordsOfEight) {
  const fs::path folder = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/quantized/aqlm_2x8";
  auto files = open_model_files(folder.string());
  ASSERT_TRUE(files.ok()) << files.error().message;
  const Expected expected = read_expected(folder);
  const std::vector<float> run = logits_of(*files, expected.tokens);
  testing::expand_codebooks(*files, true);
  const std::vector<float> words = logits_of(std::move(*files), expected.tokens);
  EXPECT_LT(relative_error(run, words), 0.1);
  EXPECT_LT(relative_error(words, expected.logits), 0.2);
}

INSTANTIATE_TEST_SUITE_P(Layouts, QuantizedCheckpoints,
                         ::testing::Values(QuantizedCase{"gptq_2", "q4_0"}, QuantizedCase{"gptq_3_asymmetric", "q4_0"},
                                           QuantizedCase{"gptq_4", "q4_0"}, QuantizedCase{"gptq_4_act_order", "q5_0"},
                                           QuantizedCase{"gptq_8", "q8_0"}, QuantizedCase{"awq", "q5_0"},
                                           QuantizedCase{"pack_3", "q4_0"}, QuantizedCase{"pack_4", "q4_0"},
                                           QuantizedCase{"pack_4_asymmetric", "q5_0"}, QuantizedCase{"int_8", "q8_0"},
                                           QuantizedCase{"bitsandbytes_8", "q8_0", 2e-3},
                                           QuantizedCase{"bitsandbytes_nf4", "nf4", 0.05},
                                           QuantizedCase{"bitsandbytes_nf4_nested", "nf4", 0.05},
                                           QuantizedCase{"bitsandbytes_fp4", "fp4", 0.05},
                                           QuantizedCase{"hqq_4", "q4_1", 5e-3}, QuantizedCase{"hqq_4_whole", "q5_0"},
                                           QuantizedCase{"hqq_3", "q4_1", 5e-3}, QuantizedCase{"hqq_2_axis_0", "f32"},
                                           QuantizedCase{"nvfp4", "nvfp4"}, QuantizedCase{"nvfp4_modelopt", "nvfp4"},
                                           QuantizedCase{"mxfp4", "mxfp4"}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace millrace
