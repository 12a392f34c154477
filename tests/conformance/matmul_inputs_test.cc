// Matmul: rounding of activations, values that are not finite, block scales next to the matrix, and weights that are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "conformance/matmul_case.h"

namespace millrace {
namespace {

using namespace testing;  // matmul_case.h

// At most half a step from every value: q8 takes the step of a group's own largest value; q8_shift at most twice as
// large a one, and none below 2^-12 of the row's.
TEST(MatmulConformance, ActivationsAreRoundedByHalfAStep) {
  constexpr int64_t kGroups = 20;
  std::vector<float> x = normal_values(kGroups * 32, 77);
  for (int64_t i = 0; i < kGroups * 32; ++i) x[i] = std::ldexp(x[i], static_cast<int>(-(i / 32)));  // from 1 to 2^-19
  float row_largest = 0;
  for (float v : x) row_largest = std::max(row_largest, std::abs(v));
  for (Activation kind : {Activation::q8, Activation::q8_shift}) {
    for (const KernelTable& table : tables()) {
      AlignedBuffer row = scratch_for(kind, 1, kGroups * 32);
      table.encode_activation(kind, x.data(), kGroups * 32, row.data());
      std::vector<float> rounded = decode_activation(kind, row.data(), kGroups * 32);
      for (int64_t g = 0; g < kGroups; ++g) {
        float largest = 0;
        for (int64_t i = g * 32; i < g * 32 + 32; ++i) largest = std::max(largest, std::abs(x[i]));
        float step = largest / 127;
        if (kind == Activation::q8_shift) step = std::max(2 * step, row_largest / 127 / 4096);
        for (int64_t i = g * 32; i < g * 32 + 32; ++i) {
          EXPECT_NEAR(rounded[i], x[i], 0.5001f * step) << isa_name(table.isa) << " group " << g << " value " << i;
        }
      }
    }
  }
}

TEST(MatmulConformance, NonFiniteInputShowsInTheOutput) {
  ThreadPool pool(1);
  for (const Format* format : formats().members()) {
    Shape shape{5, format->block_values == 1 ? 64 : 2 * format->block_values};
    Case c = make_case(*format, shape.rows, shape.cols, 47);
    std::vector<float> x = normal_values(shape.cols, 48);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      for (float v : multiply(c.weight, table, pool, x, 1)) {
        EXPECT_TRUE(std::isnan(v)) << where(*format, table, shape);
      }
    }
  }
}

TEST(MatmulConformance, BlockScales) {
  const Format* format = find_format("f8_e4m3");
  if (format == nullptr) GTEST_SKIP() << "f8_e4m3 is not registered";
  ThreadPool pool(2);
  struct Blocks {
    int64_t rows, cols;
  };
  Shape shape{150, 300};
  for (Blocks blocks : {Blocks{128, 128}, Blocks{150, 300}, Blocks{1, 300}, Blocks{64, 256}}) {
    Case c = make_case(*format, shape.rows, shape.cols, 57);
    int64_t down = (shape.rows + blocks.rows - 1) / blocks.rows, across = (shape.cols + blocks.cols - 1) / blocks.cols;
    c.weight.scales = {normal_values(down * across, 58), blocks.rows, blocks.cols};
    std::vector<float> x = normal_values(2 * shape.cols, 59);
    for (const KernelTable& table : tables()) {
      auto packed = pack_weight(c.weight, table, pool);
      ASSERT_TRUE(packed.ok()) << packed.error().message;
      std::vector<float> y = multiply(c.weight, table, pool, x, 2);
      for (int64_t t = 0; t < 2; ++t) {
        for (int64_t r = 0; r < shape.rows; ++r) {
          double sum = 0, magnitude = 0;
          for (int64_t k = 0; k < shape.cols; ++k) {
            double scale = c.weight.scales.values[r / blocks.rows * across + k / blocks.cols];
            double product = scale * c.decoded[r * shape.cols + k] * x[t * shape.cols + k];
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(y[t * shape.rows + r], sum, kFloatBound * magnitude) << where(*format, table, shape);
        }
      }
    }
  }
}

TEST(MatmulConformance, BadWeightsAreRefused) {
  ThreadPool pool(1);
  const KernelTable& table = tables().front();
  Case c = make_case(*find_format("q8_0"), 2, 64, 67);
  c.weight.cols = 63;
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::user);
  c.weight.cols = int64_t{1} << 62;
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::user);
  c.weight.cols = 64;
  c.weight.scales = {{1.0f}, 2, 64};
  EXPECT_EQ(pack_weight(c.weight, table, pool).error().kind, ErrorKind::unsupported);
  KernelTable empty;
  c.weight.scales = {};
  EXPECT_EQ(pack_weight(c.weight, empty, pool).error().kind, ErrorKind::unsupported);
  if (const Format* f8 = find_format("f8_e4m3")) {
    Case scaled = make_case(*f8, 4, 256, 68);
    scaled.weight.scales = {{1.0f, 1.0f}, 4, 256};
    EXPECT_EQ(pack_weight(scaled.weight, table, pool).error().kind, ErrorKind::corrupt);
    scaled.weight.scales = {{1, 1, 1, 1}, 4, 64};
    EXPECT_EQ(pack_weight(scaled.weight, table, pool).error().kind, ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace millrace
