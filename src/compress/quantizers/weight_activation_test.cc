// Quantizers of weights and activations: on input rows that no calibration saw, each is nearer to the original outputs
// than plain rounding of both to the same formats.
#include "compress/quantizers/weight_activation_test.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

using namespace testing;

struct Better {
  const char* pass;
  const char* format;
  const char* plain;  // at the same bits
  double part;        // of its error, at most
};

class WeightActivation : public ::testing::TestWithParam<Better> {};

TEST_P(WeightActivation, IsNearerThanPlainRounding) {
  const Better& one = GetParam();
  const double found = held_out_error(one.pass, one.format), plain = held_out_error(one.plain, one.format);
  EXPECT_LT(found, one.part * plain) << one.pass << " " << found << " " << plain;
}

TEST_P(WeightActivation, ThreadsChangeNoBit) {
  ThreadPool one(1), three(3);
  PassMatrix a = passed(GetParam().pass, GetParam().format, one), b = passed(GetParam().pass, GetParam().format, three);
  encode_rest(a);
  encode_rest(b);
  EXPECT_EQ(a.encoded, b.encoded);
  const auto parts_a = part_tensors(a), parts_b = part_tensors(b);
  ASSERT_EQ(parts_a.size(), parts_b.size());
  for (size_t i = 0; i < parts_a.size(); ++i) EXPECT_EQ(parts_a[i].bytes, parts_b[i].bytes) << parts_a[i].name;
}

INSTANTIATE_TEST_SUITE_P(
    Passes, WeightActivation,
    ::testing::Values(
        Better{"smoothquant", "q8_0", "round_inputs:format=q8_0", 0.5},
        Better{"smoothquant:inputs=int4,format=q4_0", "q4_0", "round_inputs:inputs=int4,format=q4_0", 0.5},
        Better{"llm_int8", "q8_0", "llm_int8:threshold=1000000", 0.2},
        Better{"zeroquant:format=q4_0,group=32", "q4_0", "zeroquant:format=q4_0,group=0", 0.95},
        Better{"zeroquant_lorc:rank=16,inputs=none", "q4_0", "zeroquant:format=q4_0,inputs=none", 0.95},
        Better{"zeroquant_fp:rank=16,inputs=none", "mxfp4", "zeroquant_fp:rank=0,inputs=none", 0.95},
        Better{"flexgen_int4", "q4_1", "flexgen_int4:group=0", 1.0},
        Better{"outlier_suppression_plus", "q8_0", "round_inputs:format=q8_0", 0.3},
        Better{"outlier_suppression_plus:inputs=int4,format=q4_0", "q4_0", "round_inputs:inputs=int4,format=q4_0", 0.5},
        Better{"rptq", "q4_0", "round_inputs:inputs=int4,format=q4_0", 0.5},
        Better{"atom", "q4_0", "round_inputs:inputs=int4,format=q4_0,input_group=128,clip=0.9", 0.1},
        Better{"llm_fp4", "mxfp4", "round_inputs:inputs=e2m1,format=mxfp4", 0.8},
        Better{"rotate:inputs=int4,block=128", "q4_0", "round_inputs:inputs=int4,format=q4_0", 0.8}),
    [](const auto& one) {
      std::string name = one.param.pass;
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

// Without rounding, each is the matrix that it was.
TEST(WeightActivation, ChangesNothingBeforeRounding) {
  ThreadPool pool(2);
  PassMatrix plain = matrix_in("f32");
  const auto want = outputs(plain, held_out());
  double size = 0;
  for (double y : want) size += y * y;
  for (const char* pass : {"smoothquant:format=f32,inputs=none", "smoothquant:alpha=0.8,format=f32,inputs=none",
                           "outlier_suppression_plus:format=f32,inputs=none"}) {
    PassMatrix matrix = passed(pass, "f32", pool);
    EXPECT_LT(error_between(outputs(matrix, held_out()), want), 1e-11 * size) << pass;
  }
}

// GPTQ behind a pass that changes inputs corrects for the changed ones.
TEST(ChangedMoments, AreThoseOfChangedRows) {
  ThreadPool pool(2);
  const std::vector<float> x = outlier_rows(50, 3);
  InputChange change{.hadamard = 32};
  for (int64_t c = 0; c < kTestCols; ++c) {
    change.scale.push_back(0.5f + static_cast<float>(c % 5));
    change.order.push_back(static_cast<int32_t>(c * 37 % kTestCols));
  }
  std::vector<float> changed(x.size()), scratch(static_cast<size_t>(kTestCols));
  for (int64_t r = 0; r < 50; ++r)
    change_input(change, x.data() + r * kTestCols, kTestCols, scratch.data(), changed.data() + r * kTestCols);
  const SecondMoments want = statistics_of(changed, kTestCols, pool).moments;
  const SecondMoments found = changed_moments(statistics_of(x, kTestCols, pool).moments, change);
  for (int64_t i = 0; i < kTestCols; ++i)
    for (int64_t j = i; j < kTestCols; ++j)
      ASSERT_NEAR(found.at(i, j), want.at(i, j), 1e-5 * (std::sqrt(want.at(i, i) * want.at(j, j)) + 1));
}

// Of correlated inputs: without correlations there is nothing that one column could do for another.
TEST(ChangedMoments, GptqUsesThem) {
  ThreadPool pool(2);
  const auto statistics = statistics_of(correlated_rows(600, kTestCols, 77), kTestCols, pool);
  const std::vector<float> unseen = correlated_rows(60, kTestCols, 1234);
  PassMatrix plain = matrix_in("f32");
  const auto want = outputs(plain, unseen);
  for (const char* before : {"rotate:format=,block=32", "smoothquant:format=,inputs=none", "atom:format=,inputs=none",
                             "rptq:format=,inputs=int8"}) {
    double errors[2];
    for (int i = 0; i < 2; ++i) {
      PassMatrix matrix = matrix_in("q4_0");
      ASSERT_TRUE(pass_of(before)->apply(matrix, statistics, pool).ok());
      if (i == 1) {
        EXPECT_EQ(pass_of("gptq")->apply(matrix, statistics, pool)->action, "quantized");
      }
      errors[i] = error_between(outputs(matrix, unseen), want);
    }
    EXPECT_LT(errors[1], 0.9 * errors[0]) << before;
  }
}

TEST(WeightActivation, SaysWhatIsWrong) {
  const auto failure = [](const std::string& text) {
    auto made = make_pass(text);
    return made.ok() ? std::string("made") : made.error().message;
  };
  for (const char* name : {"int9", "int1", "e0m3", "e6m1", "e2m4", "fp8", ""})
    EXPECT_EQ(failure(fmt::format("smoothquant:inputs={}", name)),
              fmt::format("pass smoothquant: inputs '{}': must be none, int2 to int8, or a float of at most 5 exponent "
                          "and 3 mantissa bits, such as e4m3; and clip above 0 and at most 1, is 1",
                          name));
  EXPECT_EQ(failure("round_inputs:inputs=none"), "pass round_inputs: inputs 'none': there is nothing to round");
  EXPECT_EQ(failure("zeroquant:format=q4_k"),
            "pass zeroquant: format 'q4_k': must be one of q8_0, q4_0, q4_1, q5_0 and q5_1");
  EXPECT_EQ(failure("zeroquant:group=48"), "pass zeroquant: group 48: must be a multiple of 32 columns");
  EXPECT_EQ(failure("llm_int8:scales=column"), "pass llm_int8: scales 'column': must be row or block");
  EXPECT_EQ(failure("atom:outliers=20"), "pass atom: outliers: must be a multiple of 32 columns, the blocks of q8_0");
  ThreadPool pool(1);
  for (const char* pass : {"round_inputs", "smoothquant", "llm_int8", "zeroquant", "zeroquant_lorc", "zeroquant_fp",
                           "outlier_suppression_plus", "rptq", "atom", "llm_fp4", "olive", "billm"}) {
    PassMatrix stacked = matrix_in("q4_0"), head = matrix_in("q4_0");
    stacked.no_parts = "a stack of experts cannot have weight parts";
    head.id = {};
    const auto statistics = calibrated(pool);
    EXPECT_EQ(pass_of(pass)->apply(stacked, statistics, pool)->why, stacked.no_parts);
    EXPECT_EQ(pass_of(pass)->apply(head, statistics, pool)->why, "the head's inputs stay as they are");
    EXPECT_TRUE(stacked.parts.empty() && stacked.encoded.empty());
  }
}

}  // namespace
}  // namespace millrace
