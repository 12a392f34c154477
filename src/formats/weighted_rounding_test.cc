// Weighted rounding: the weighted error is never larger than that of plain rounding, clearly smaller where weights
// differ, and equal weights change little.
#include "formats/weighted_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace millrace {
namespace {

struct Row {
  std::vector<float> values, weights;
};

// Weights of very different sizes, such as those of a model's inputs.
Row random_row(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  const auto uniform = [&] { return static_cast<double>(engine()) * 0x1p-32; };
  Row out;
  for (int64_t i = 0; i < n; ++i) {
    double sum = -6;
    for (int j = 0; j < 12; ++j) sum += uniform();
    out.values.push_back(static_cast<float>(sum));
    out.weights.push_back(static_cast<float>(std::exp(6 * uniform() - 3)));
  }
  return out;
}

double error_of(const Format& format, const Row& row, const std::vector<uint8_t>& stored, int64_t begin, int64_t n) {
  std::vector<float> rounded(row.values.size());
  format.decode(stored.data(), rounded.data(), std::ssize(rounded));
  double sum = 0;
  for (int64_t i = begin; i < begin + n; ++i) {
    const auto at = static_cast<size_t>(i);
    sum += row.weights[at] * std::pow(double{rounded[at]} - row.values[at], 2);
  }
  return sum;
}

TEST(WeightedRounding, NoBlockIsWorseThanWithPlainRounding) {
  int known = 0;
  for (const Format* format : formats().members()) {
    if (!rounds_by_weights(*format)) continue;
    ++known;
    double weighted = 0, plain = 0;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      Row row = random_row(512, seed);
      if (seed == 7) std::fill(row.values.begin(), row.values.end(), 0.25f);
      std::vector<uint8_t> by_weights(static_cast<size_t>(format->row_bytes(512))), plainly = by_weights;
      encode_weighted(*format, row.values.data(), row.weights.data(), by_weights.data(), 512);
      format->encode(row.values.data(), plainly.data(), 512);
      for (int64_t begin = 0; begin < 512; begin += format->block_values)
        EXPECT_LE(error_of(*format, row, by_weights, begin, format->block_values),
                  error_of(*format, row, plainly, begin, format->block_values))
            << format->name << " " << seed;
      weighted += error_of(*format, row, by_weights, 0, 512);
      plain += error_of(*format, row, plainly, 0, 512);
    }
    EXPECT_LT(weighted, 0.95 * plain) << format->name;
  }
  EXPECT_EQ(known, 15);
}

// A block that one weight rules has that value nearly exact.
TEST(WeightedRounding, TheValueThatCountsIsExact) {
  for (const Format* format : formats().members()) {
    if (!rounds_by_weights(*format)) continue;
    Row row = random_row(format->block_values, 3);
    std::fill(row.weights.begin(), row.weights.end(), 1e-6f);
    row.weights[5] = 1;
    std::vector<uint8_t> stored(static_cast<size_t>(format->block_bytes)), plain = stored;
    encode_weighted(*format, row.values.data(), row.weights.data(), stored.data(), format->block_values);
    format->encode(row.values.data(), plain.data(), format->block_values);
    EXPECT_LE(error_of(*format, row, stored, 5, 1), error_of(*format, row, plain, 5, 1) + 1e-4) << format->name;
    EXPECT_LT(error_of(*format, row, stored, 5, 1), 2e-3) << format->name;
  }
}

TEST(WeightedRounding, BadNumbersAreClamped) {
  for (const Format* format : formats().members()) {
    if (!rounds_by_weights(*format)) continue;
    Row row = random_row(format->block_values, 4);
    row.values[0] = NAN;
    row.values[1] = INFINITY;
    std::vector<uint8_t> stored(static_cast<size_t>(format->block_bytes));
    encode_weighted(*format, row.values.data(), row.weights.data(), stored.data(), format->block_values);
    EXPECT_EQ(format->find_non_finite(stored.data(), format->block_values), -1) << format->name;
  }
}

}  // namespace
}  // namespace millrace
