// Products of int8 matrices against sums of 64-bit integers and doubles, for every instruction set of this machine.
#include "kernels/int8_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace millrace {
namespace {

std::vector<float> random_floats(int64_t count, uint64_t seed, double largest) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>((2 * philox_uniform(seed, 0, static_cast<uint64_t>(i)) - 1) * largest));
  return out;
}

// The level of a value, by the definition.
int64_t level_of(float value, float scale) {
  return std::llrint(std::clamp(std::nearbyint(value * (1 / scale)), -127.0f, 127.0f));
}

Int8Matrix matrix_of(const std::vector<float>& values, int64_t rows, int64_t cols, float scale) {
  Int8Matrix matrix = make_int8_matrix(rows, cols, scale).value();
  for (int64_t r = 0; r < rows; ++r) store_int8_row(r, values.data() + r * cols, matrix);
  return matrix;
}

struct Inputs {
  std::vector<int8_t> levels;
  std::vector<int32_t> sums;
  std::vector<std::vector<Int8Outlier>> outliers;
};

Inputs encode_all(const Int8Kernels& kernels, const std::vector<float>& x, int64_t tokens, int64_t cols, float scale) {
  const int64_t stride = int8_input_bytes(cols);
  Inputs out{std::vector<int8_t>(static_cast<size_t>(tokens * stride), 77), {}, {}};
  std::vector<Int8Outlier> found(static_cast<size_t>(cols));
  for (int64_t t = 0; t < tokens; ++t) {
    const Int8InputSum sum =
        kernels.encode({x.data() + t * cols, cols, scale, out.levels.data() + t * stride, found.data()});
    out.sums.push_back(sum.sum);
    out.outliers.emplace_back(found.begin(), found.begin() + sum.outliers);
  }
  return out;
}

class Int8Matrices : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (static_cast<size_t>(GetParam()) >= isa_variants().size()) GTEST_SKIP() << "this machine has fewer";
  }
  const Int8Kernels& kernels() const { return int8_kernels(isa_variants()[static_cast<size_t>(GetParam())]); }
};

TEST_P(Int8Matrices, ProductsAreExact) {
  for (const auto& [rows, cols, tokens] :
       {std::array<int64_t, 3>{1, 1, 1}, {17, 5, 3}, {50, 64, 13}, {33, 131, 29}, {16, 300, 12}, {64, 1027, 7}}) {
    const auto weights = random_floats(rows * cols, 1, 0.5), x = random_floats(tokens * cols, 2, 3);
    const float weight_scale = 0.5f / 127, scale = 0.02f;  // some inputs exceed the levels
    const Int8Matrix matrix = matrix_of(weights, rows, cols, weight_scale);
    const Inputs inputs = encode_all(kernels(), x, tokens, cols, scale);
    std::vector<float> y(static_cast<size_t>(tokens * rows), -1);
    std::vector<float*> outputs;
    for (int64_t t = 0; t < tokens; ++t) outputs.push_back(t == 1 ? nullptr : y.data() + t * rows);
    const Int8Product product{&matrix, inputs.levels.data(), inputs.sums.data(),
                              tokens,  scale * weight_scale, outputs.data()};
    kernels().multiply(product, 0, (rows + 15) / 16);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t r = 0; r < rows; ++r) {
        int64_t sum = 0;
        for (int64_t c = 0; c < cols; ++c)
          sum += level_of(x[static_cast<size_t>(t * cols + c)], scale) *
                 level_of(weights[static_cast<size_t>(r * cols + c)], weight_scale);
        const float expected = t == 1 ? -1 : static_cast<float>(sum) * (scale * weight_scale);
        ASSERT_EQ(y[static_cast<size_t>(t * rows + r)], expected) << rows << "x" << cols << " row " << r;
      }
  }
}

TEST_P(Int8Matrices, ResidualsAreWhatLevelsLeave) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.5f, 126.4f, 127.4f, 127.6f, -500, 3e12f, -3e12f, inf, -inf, NAN, 0, -127.6f};
  const Inputs inputs = encode_all(kernels(), x, 1, std::ssize(x), 1);
  const std::vector<int> levels = {0, 126, 127, 127, -127, 127, -127, 127, -127, -127, 0, -127};
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(inputs.levels[i], levels[i]) << x[i];
  for (size_t i = x.size(); i < 64; ++i) EXPECT_EQ(inputs.levels[i], 0);
  const std::vector<Int8Outlier> expected = {{3, x[3] - 127}, {4, -373}, {5, 3e12f - 127}, {6, -3e12f + 127},
                                             {7, inf},        {8, -inf}, {9, NAN},         {11, x[11] + 127}};
  ASSERT_EQ(inputs.outliers[0].size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(inputs.outliers[0][i].column, expected[i].column);
    if (i == 6)
      EXPECT_TRUE(std::isnan(inputs.outliers[0][i].residual));
    else
      EXPECT_EQ(inputs.outliers[0][i].residual, expected[i].residual) << i;
  }
}

TEST_P(Int8Matrices, EveryInstructionSetHasTheSameLevels) {
  const int64_t cols = 1003;
  const auto x = random_floats(cols, 3, 4);
  const Inputs reference = encode_all(int8_kernels_ref(), x, 1, cols, 0.03f);
  const Inputs inputs = encode_all(kernels(), x, 1, cols, 0.03f);
  EXPECT_EQ(inputs.levels, reference.levels);
  EXPECT_EQ(inputs.sums, reference.sums);
  ASSERT_EQ(inputs.outliers[0].size(), reference.outliers[0].size());
  EXPECT_GT(inputs.outliers[0].size(), 20u);
  for (size_t i = 0; i < inputs.outliers[0].size(); ++i)
    EXPECT_EQ(inputs.outliers[0][i].residual, reference.outliers[0][i].residual);
}

// The paper's premise: some channels are far beyond the others. All others are whole levels here, so that only what is
// beyond them can be lost.
TEST_P(Int8Matrices, ShadowOutliersRestoreThePlantedChannels) {
  const int64_t rows = 48, cols = 256, tokens = 8;
  std::vector<float> weights, x;
  for (int64_t i = 0; i < rows * cols; ++i)
    weights.push_back(static_cast<float>(static_cast<int>(255 * philox_uniform(4, 0, static_cast<uint64_t>(i))) - 127));
  for (int64_t i = 0; i < tokens * cols; ++i) {
    const double draw = philox_uniform(5, 0, static_cast<uint64_t>(i));
    const bool planted = i % cols % 61 == 7;  // five channels
    x.push_back(planted ? static_cast<float>(20000 * (draw - 0.5))
                        : static_cast<float>(static_cast<int>(255 * draw) - 127));
  }
  const Int8Matrix matrix = matrix_of(weights, rows, cols, 1);
  const auto errors = [&](float scale, bool shadow) {
    const Inputs inputs = encode_all(kernels(), x, tokens, cols, scale);
    std::vector<float> y(static_cast<size_t>(tokens * rows));
    std::vector<float*> outputs;
    for (int64_t t = 0; t < tokens; ++t) outputs.push_back(y.data() + t * rows);
    kernels().multiply({&matrix, inputs.levels.data(), inputs.sums.data(), tokens, scale, outputs.data()}, 0, 3);
    std::vector<std::vector<float>> columns(static_cast<size_t>(cols), std::vector<float>(static_cast<size_t>(rows)));
    for (int64_t i = 0; i < rows * cols; ++i)
      columns[static_cast<size_t>(i % cols)][static_cast<size_t>(i / cols)] = weights[static_cast<size_t>(i)];
    double error = 0, total = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<Int8Term> terms;
      for (const Int8Outlier& one : inputs.outliers[static_cast<size_t>(t)])
        terms.push_back({columns[static_cast<size_t>(one.column)].data(), one.residual});
      if (shadow) kernels().add_columns(terms.data(), std::ssize(terms), 0, rows, outputs[static_cast<size_t>(t)]);
      for (int64_t r = 0; r < rows; ++r) {
        double exact = 0, normal = 0;  // normal: what the planted channels do not contribute
        for (int64_t c = 0; c < cols; ++c) {
          const double product = static_cast<double>(x[static_cast<size_t>(t * cols + c)]) *
                                 static_cast<double>(weights[static_cast<size_t>(r * cols + c)]);
          exact += product;
          if (c % 61 != 7) normal += product;
        }
        error += std::pow(y[static_cast<size_t>(t * rows + r)] - exact, 2);
        total += normal * normal;
      }
    }
    return std::sqrt(error / total);
  };
  EXPECT_LT(errors(1, true), 1e-3);
  EXPECT_GT(errors(1, false), 1);                // cut at 127
  EXPECT_GT(errors(10000.0f / 127, true), 0.1);  // one scale that covers the planted channels: nothing is cut
}

TEST_P(Int8Matrices, ColumnsAreAddedInParts) {
  const int64_t rows = 211;
  const auto columns = random_floats(5 * rows, 6, 2);
  std::vector<Int8Term> terms;
  for (int64_t i = 0; i < 5; ++i) terms.push_back({columns.data() + i * rows, static_cast<float>(i) - 1.5f});
  std::vector<float> whole = random_floats(rows, 7, 1), parts = whole;
  const std::vector<float> before = whole;
  kernels().add_columns(terms.data(), 5, 0, rows, whole.data());
  kernels().add_columns(terms.data(), 5, 0, 64, parts.data());
  kernels().add_columns(terms.data(), 5, 64, rows, parts.data());
  EXPECT_EQ(whole, parts);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = before[static_cast<size_t>(r)];
    for (const Int8Term& term : terms) sum += static_cast<double>(term.column[r]) * term.residual;
    EXPECT_NEAR(whole[static_cast<size_t>(r)], sum, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Int8Matrices, ::testing::Range(0, 8));

TEST(Int8Matrix, TooManyColumnsAreRefused) {
  EXPECT_FALSE(make_int8_matrix(1, kMaxInt8Columns + 1, 1).ok());
  // The largest sums still fit: 255 * 127 * columns below 2^31.
  EXPECT_LT(255LL * 127 * kMaxInt8Columns, 1LL << 31);
}

}  // namespace
}  // namespace millrace
