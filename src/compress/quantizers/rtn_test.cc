// Scales of blocks by least squares: of no block and no format is the error above plain rounding's, it is near the
// least one that any scale has, and the pass rounds to the nearest level.
#include <algorithm>

#include "compress/compress_test.h"
#include "compress/rounding/level_scales.h"
#include "compress/rounding/scale_search.h"
#include "contains.h"
#include "formats/block.h"

namespace millrace {
namespace {

using namespace testing;

std::vector<const Format*> formats_of_levels() {
  std::vector<const Format*> out;
  for (const Format* format : formats().members())
    if (format->levels > 0 && format->name != "nvfp4") out.push_back(format);  // scales of 8-bit floats: no layout
  return out;
}

double block_error(const Format& format, const std::vector<float>& values, const std::vector<double>& weights,
                   const uint8_t* block) {
  std::vector<float> decoded(values.size());
  format.decode(block, decoded.data(), std::ssize(values));
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * std::pow(double{values[i]} - decoded[i], 2);
  return sum;
}

TEST(LevelScales, AreThoseThatFormatsDecode) {
  for (const Format* format : formats_of_levels()) {
    const ScaleLayout* layout = find_scale_layout(*format);
    ASSERT_NE(layout, nullptr) << format->name;
    const std::vector<float> units = level_units(*format, *layout);
    ASSERT_EQ(std::ssize(units), format->levels);
    std::vector<uint8_t> block(static_cast<size_t>(format->block_bytes));
    LevelScales scales{.d = 0.25f, .dmin = layout->most_minimum > 0 ? 0.5f : 0.0f};
    for (int g = 0; g < layout->groups; ++g) {
      scales.scale[g] = layout->sub_scales() ? layout->most_scale - g : 1;
      scales.minimum[g] = layout->most_minimum > 1 ? g % layout->most_minimum : layout->most_minimum;
    }
    layout->store(scales, block.data());
    for (int i = 0; i < format->block_values; ++i) format->set_level(block.data(), i, i % format->levels);
    std::vector<float> decoded(static_cast<size_t>(format->block_values));
    format->decode(block.data(), decoded.data(), format->block_values);
    for (int i = 0; i < format->block_values; ++i) {
      const int g = i / (format->block_values / layout->groups);
      EXPECT_EQ(decoded[static_cast<size_t>(i)],
                scales.d * static_cast<float>(scales.scale[g]) * units[static_cast<size_t>(i % format->levels)] -
                    scales.dmin * static_cast<float>(scales.minimum[g]))
          << format->name << " " << i;
    }
  }
}

TEST(ScaleSearch, IsNeverWorseThanPlainRounding) {
  for (const Format* format : formats_of_levels()) {
    ScaleSearch search(*format);
    const auto n = static_cast<size_t>(format->block_values);
    std::vector<uint8_t> plain(static_cast<size_t>(format->block_bytes)), found(plain.size());
    double plain_sum = 0, found_sum = 0;
    for (uint32_t seed = 0; seed < 24; ++seed) {
      std::vector<float> values = normal_values(format->block_values, 100 + seed);
      std::vector<double> weights(n, 1.0);
      const std::vector<float> other = normal_values(format->block_values, 200 + seed);
      for (size_t i = 0; i < n; ++i) {
        if (seed % 3 == 1) values[i] *= values[i] * values[i];    // a few large ones
        if (seed % 4 == 2) values[i] = std::fabs(values[i]) + 1;  // far from zero
        if (seed % 2 == 1) weights[i] = double{other[i]} * other[i];
      }
      if (seed == 20) std::ranges::fill(values, 0.0f);
      if (seed == 21) std::ranges::fill(values, -3.0f);
      if (seed == 22) std::ranges::fill(weights, 0.0);
      if (seed == 23) values.assign(n, 1e-30f);
      format->encode(values.data(), plain.data(), format->block_values);
      const double error = search.choose(values.data(), weights.data(), found.data());
      const double before = block_error(*format, values, weights, plain.data());
      EXPECT_LE(error, before * (1 + 1e-12)) << format->name << " " << seed;
      EXPECT_NEAR(error, block_error(*format, values, weights, found.data()), 1e-12 * before) << format->name << seed;
      plain_sum += before;
      found_sum += error;
    }
    // Plain rounding tries the powers of two that there are; and the mean of all magnitudes is the best scale of signs.
    if (format->name == "mxfp4" || format->name == "q1_0") continue;
    EXPECT_LT(found_sum, (format->levels > 32 ? 1.0 : 0.95) * plain_sum) << format->name;
  }
}

// Against every scale that a block can have.
TEST(ScaleSearch, IsNearTheBestScale) {
  for (const char* name : {"q4_0", "iq4_nl", "mxfp4"}) {
    const Format& format = *find_format(name);
    const ScaleLayout& layout = *find_scale_layout(format);
    const std::vector<float> units = level_units(format, layout);
    ScaleSearch search(format);
    for (uint32_t seed : {1u, 2u, 3u}) {
      const std::vector<float> values = normal_values(format.block_values, seed);
      std::vector<double> weights;
      for (float x : normal_values(format.block_values, seed + 50)) weights.push_back(x * x + 0.1);
      double least = INFINITY;
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        float d = f16_to_f32(static_cast<uint16_t>(bits));
        if (layout.power_of_two) {
          if (bits >= 40) break;
          d = std::ldexp(1.0f, static_cast<int>(bits) - 20);
        }
        if (!std::isfinite(d) || std::fabs(d) > 4 || std::fabs(d) < 0.001f) continue;
        double error = 0;
        for (size_t i = 0; i < values.size() && error < least; ++i) {
          double nearest = INFINITY;
          for (float unit : units) nearest = std::min(nearest, std::fabs(double{d} * unit - values[i]));
          error += weights[i] * nearest * nearest;
        }
        least = std::min(least, error);
      }
      std::vector<uint8_t> block(static_cast<size_t>(format.block_bytes));
      const double found = search.choose(values.data(), weights.data(), block.data());
      EXPECT_LE(found, least * (layout.power_of_two ? 1 + 1e-9 : 1.05)) << name << " " << seed;
      EXPECT_GE(found, least * (1 - 1e-6)) << name << " " << seed;
    }
  }
}

double rounded_error(const char* format, const std::string& options, bool normal = true) {
  ThreadPool pool(2);
  PassMatrix matrix = matrix_of(16, 256, format, 7);
  if (!normal)
    for (float& x : matrix.values) x = x * x * x;
  EXPECT_TRUE(pass_of("rtn:format=" + std::string(format) + options)->apply(matrix, {}, pool).ok());
  std::vector<float> decoded(matrix.values.size());
  matrix.format->decode(matrix.encoded.data(), decoded.data(), std::ssize(decoded));
  double sum = 0;
  for (size_t i = 0; i < decoded.size(); ++i) sum += std::pow(double{decoded[i]} - matrix.values[i], 2);
  return sum;
}

// A minimum per block is half a bit more: it must be of use.
TEST(RoundToNearest, AMinimumPerBlockIsOfUse) {
  EXPECT_LT(rounded_error("q4_1", ""), rounded_error("q4_0", ""));
  EXPECT_LT(rounded_error("q4_1", "", false), rounded_error("q4_0", "", false));
  EXPECT_LT(rounded_error("q5_1", ""), rounded_error("q5_0", ""));
  EXPECT_LT(rounded_error("q4_1", ""), 0.9 * rounded_error("q4_1", ",fit=plain"));
  EXPECT_LT(rounded_error("q2_k", ""), 0.95 * rounded_error("q2_k", ",fit=plain"));
}

TEST(RoundToNearest, PlainIsWhatConvertWrites) {
  ThreadPool pool(2);
  for (const Format* format : formats_of_levels()) {
    PassMatrix matrix = matrix_of(3, 256, std::string(format->name).c_str(), 9);
    ASSERT_TRUE(pass_of("rtn:fit=plain,format=" + std::string(format->name))->apply(matrix, {}, pool).ok());
    std::vector<uint8_t> rows(static_cast<size_t>(3 * format->row_bytes(256)));
    format->encode(matrix.values.data(), rows.data(), 3 * 256);
    EXPECT_EQ(matrix.encoded, rows) << format->name;
  }
}

TEST(RoundToNearest, CountsErrorsAsAsked) {
  ThreadPool pool(3);
  const int64_t cols = 256;
  const auto statistics = statistics_of(correlated_rows(300, cols, 3), cols, pool);
  const auto error_by = [&](const char* counted, const char* measured) {
    PassMatrix matrix = matrix_of(8, cols, "q3_k", 5);
    EXPECT_TRUE(pass_of(std::string("rtn:format=q3_k,count=") + counted)->apply(matrix, statistics, pool).ok());
    std::vector<float> decoded(matrix.values.size());
    matrix.format->decode(matrix.encoded.data(), decoded.data(), std::ssize(decoded));
    double sum = 0;
    for (size_t i = 0; i < decoded.size(); ++i) {
      const double x = matrix.values[i], square = std::pow(x - decoded[i], 2);
      sum += square * (measured[0] == 'e'   ? 1
                       : measured[0] == 'v' ? x * x + 1
                                            : statistics.squares[i % static_cast<size_t>(cols)]);
    }
    return sum;
  };
  for (const char* counted : {"equal", "values", "inputs"})
    for (const char* other : {"equal", "values", "inputs"})
      EXPECT_LE(error_by(counted, counted), error_by(other, counted) * 1.001) << counted << " " << other;
}

TEST(RoundToNearest, ThreadsChangeNoBit) {
  std::vector<uint8_t> first;
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    PassMatrix matrix = matrix_of(33, 256, "q4_k", 8);
    ASSERT_TRUE(pass_of("rtn:format=q4_k,count=values")->apply(matrix, {}, pool).ok());
    if (first.empty()) first = matrix.encoded;
    EXPECT_EQ(matrix.encoded, first);
  }
}

TEST(RoundToNearest, RefusesOptions) {
  EXPECT_CONTAINS(make_pass("rtn:format=f16").error().message, "format 'f16': is not a format of levels");
  EXPECT_EQ(make_pass("rtn:fit=best").error().message, "pass rtn: fit 'best': must be plain or search");
  EXPECT_EQ(make_pass("rtn:count=all").error().message, "pass rtn: count 'all': must be equal, values or inputs");
  EXPECT_EQ(make_pass("rtn:fit=plain,count=inputs").error().message, "pass rtn: count: only fit=search weighs errors");
}

}  // namespace
}  // namespace millrace
