// Rounded inputs against a plain search through all numbers of a format; rows of int8 products hold exactly the rounded
// values where they can.
#include "kernels/input_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/cpu.h"
#include "kernels/activation.h"

namespace millrace {
namespace {

using Values = std::vector<float>;

// All numbers that are not negative, ascending, from the definition of a float with subnormals.
std::vector<double> numbers_of(const InputSegment& segment) {
  std::vector<double> out;
  if (segment.exponent_bits == 0) {
    for (int i = 0; i < 1 << segment.mantissa_bits; ++i) out.push_back(i);
    return out;
  }
  const int steps = 1 << segment.mantissa_bits, bias = (1 << (segment.exponent_bits - 1)) - 1;
  for (int e = 0; e < 1 << segment.exponent_bits; ++e)
    for (int m = 0; m < steps; ++m)
      out.push_back(e == 0 ? std::ldexp(static_cast<double>(m) / steps, 1 - bias)
                           : std::ldexp(1 + static_cast<double>(m) / steps, e - bias));
  if (segment.exponent_bits == 4 && segment.mantissa_bits == 3) out.pop_back();  // NaN
  return out;
}

// Of two equally near, the one with an even place.
double searched(const std::vector<double>& numbers, double x) {
  size_t best = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    const double here = std::fabs(std::fabs(x) - numbers[i]), before = std::fabs(std::fabs(x) - numbers[best]);
    if (here < before || (here == before && i % 2 == 0)) best = i;
  }
  return x < 0 ? -numbers[best] : numbers[best];
}

const InputSegment kFormats[] = {{1, 0, 7, 1}, {1, 0, 3, 1}, {1, 0, 1, 1}, {1, 4, 3, 1},
                                 {1, 5, 2, 1}, {1, 2, 1, 1}, {1, 3, 0, 1}, {1, 1, 2, 1}};

Values random_row(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  Values out(static_cast<size_t>(n));
  for (float& x : out)
    x = static_cast<float>((engine() * 0x1p-31 - 1) * std::ldexp(1.0, static_cast<int>(engine() % 6)));
  return out;
}

// x beside the largest number, which makes the scale 1.
float nearest_number(const PartKernels& kernels, InputSegment segment, float x) {
  float group[2] = {x, largest_number(segment)};
  segment.columns = segment.group = 2;
  round_inputs(kernels, {&segment, 1}, group);
  return group[0];
}

TEST(InputRounding, TakesTheNearestNumber) {
  const PartKernels& kernels = part_kernels(*select_isa());
  for (const InputSegment& format : kFormats) {
    ASSERT_TRUE(valid_segment(format));
    const std::vector<double> numbers = numbers_of(format);
    EXPECT_EQ(largest_number(format), numbers.back()) << format.exponent_bits << " " << format.mantissa_bits;
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(nearest_number(kernels, format, static_cast<float>(-numbers[i])), -numbers[i]);
      if (i == 0) continue;
      const auto middle = static_cast<float>((numbers[i] + numbers[i - 1]) / 2);
      for (float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
        // Without mantissa bits no number is even: halves go up.
        const double expected = format.exponent_bits > 0 && format.mantissa_bits == 0 && x == middle && i > 1
                                    ? numbers[i]
                                    : searched(numbers, x);
        EXPECT_EQ(nearest_number(kernels, format, x), expected) << x;
      }
    }
    for (float x : random_row(500, 3)) {
      x *= largest_number(format) / 64;
      EXPECT_EQ(nearest_number(kernels, format, x), searched(numbers, x)) << x;
    }
  }
}

TEST(InputRounding, GivesEachGroupItsScale) {
  const int64_t cols = 83;
  for (const InputSegment& format : kFormats) {
    InputSegment first = format, second = format;
    first.columns = 50, first.group = 16, first.clip = 0.9f;
    second.columns = 33, second.group = 33;
    const Values x = random_row(cols, 7);
    Values rounded = x;
    const InputSegment segments[] = {first, second};
    round_inputs(segments, rounded.data());
    const std::vector<double> numbers = numbers_of(format);
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t begin = c < 50 ? c / 16 * 16 : 50, end = c < 50 ? std::min<int64_t>(50, begin + 16) : cols;
      float largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[static_cast<size_t>(i)]));
      const double scale = (c < 50 ? 0.9 : 1.0) * largest / numbers.back();
      const double number = rounded[static_cast<size_t>(c)] / scale;
      EXPECT_NEAR(number, searched(numbers, number), 1e-5 * numbers.back());
      // No number is nearer, but for the precision of floats.
      const double want = std::clamp(x[static_cast<size_t>(c)] / scale, -numbers.back(), numbers.back());
      EXPECT_LE(std::fabs(number - want), std::fabs(searched(numbers, want) - want) + 1e-5 * numbers.back());
    }
  }
}

// The values that a row of int8 products stands for.
Values decoded(const uint8_t* row, int64_t cols) {
  float unit = 0;
  std::memcpy(&unit, row + q8_unit_at(cols), sizeof unit);
  Values out;
  for (int64_t c = 0; c < cols; ++c) {
    const uint8_t* record = row + c / kActivationGroup * kQ8GroupBytes;
    float scale = 0;
    std::memcpy(&scale, record + kQ8ScaleAt, sizeof scale);
    out.push_back(unit * scale * static_cast<float>(static_cast<int8_t>(record[c % kActivationGroup])));
  }
  return out;
}

TEST(InputRounding, Int8ProductsHaveTheRoundedValues) {
  const KernelTable table = make_kernel_table(*select_isa());
  const int64_t cols = 160;
  std::vector<uint8_t> row(static_cast<size_t>(activation_row_bytes(Activation::q8, cols)));
  for (const InputSegment& format : kFormats)
    for (int64_t group : {cols, int64_t{64}, int64_t{20}})
      for (Activation kind : {Activation::q8, Activation::q8_shift}) {
        InputSegment segment = format;
        segment.columns = cols, segment.group = static_cast<int32_t>(group);
        Values want = random_row(cols, 9), x = want;
        float largest = 0;
        for (float value : x) largest = std::max(largest, std::fabs(value));
        round_inputs({&segment, 1}, want.data());
        encode_rounded_row(table, kind, {&segment, 1}, cols, x.data(), row.data());
        const Values found = decoded(row.data(), cols);
        const bool levels = numbers_of(format).back() / numbers_of(format)[1] <= 127;
        const bool exact = levels && (group == cols || (group == 64 && kind == Activation::q8));
        for (size_t c = 0; c < want.size(); ++c)
          ASSERT_NEAR(found[c], want[c], (exact ? 1e-6 : 1.0 / 250) * largest)
              << format.exponent_bits << " " << format.mantissa_bits << " " << group << " " << c;
      }
}

// What kernels read besides the levels, as encode_activation() fills it.
TEST(InputRounding, RecordsAreThoseOfInt8Rows) {
  const KernelTable table = make_kernel_table(*select_isa());
  const int64_t cols = 96;
  const auto bytes = static_cast<size_t>(activation_row_bytes(Activation::q8, cols));
  for (Activation kind : {Activation::q8, Activation::q8_shift}) {
    Values x(static_cast<size_t>(cols));
    for (size_t c = 0; c < x.size(); ++c) x[c] = static_cast<float>(static_cast<int>(c * 37 % 255) - 127);
    for (size_t c : {0, 32, 64}) x[c] = 127;  // every group has the scale 1
    std::vector<uint8_t> want(bytes), found(bytes);
    const InputSegment segment{static_cast<int32_t>(cols), 0, 7, static_cast<int32_t>(cols)};
    table.encode_activation(kind, x.data(), cols, want.data());
    encode_rounded_row(table, kind, {&segment, 1}, cols, x.data(), found.data());
    for (int64_t g = 0; g < cols / kActivationGroup; ++g) {
      const uint8_t *a = want.data() + g * kQ8GroupBytes, *b = found.data() + g * kQ8GroupBytes;
      EXPECT_EQ(std::memcmp(a, b, kActivationGroup), 0);
      EXPECT_EQ(std::memcmp(a + kQ8StartAt, b + kQ8StartAt, kQ8GroupBytes - kQ8StartAt), 0);
      if (kind == Activation::q8) {
        EXPECT_EQ(std::memcmp(a, b, kQ8GroupBytes), 0);
      }
    }
  }
}

TEST(InputRounding, KeepsNanVisibleAndZerosZero) {
  const KernelTable table = make_kernel_table(*select_isa());
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const InputSegment& format : {InputSegment{64, 0, 7, 64}, InputSegment{64, 4, 3, 64}}) {
      Values x(64, 1.0f), zeros(64, 0.0f);
      x[5] = bad;
      std::vector<uint8_t> row(static_cast<size_t>(activation_row_bytes(Activation::q8, 64)));
      encode_rounded_row(table, Activation::q8, {&format, 1}, 64, x.data(), row.data());
      EXPECT_TRUE(std::isnan(decoded(row.data(), 64)[5]));
      encode_rounded_row(table, Activation::q8, {&format, 1}, 64, zeros.data(), row.data());
      EXPECT_EQ(decoded(row.data(), 64), Values(64, 0.0f));
    }
}

TEST(InputRounding, RefusesWhatIsNoFormat) {
  for (const InputSegment& wrong :
       {InputSegment{4, 0, 0, 4}, InputSegment{4, 0, 8, 4}, InputSegment{4, 6, 1, 4}, InputSegment{4, 2, 4, 4},
        InputSegment{0, 0, 7, 4}, InputSegment{4, 0, 7, 0}, InputSegment{4, 0, 7, 4, 0}, InputSegment{4, 0, 7, 4, 1.5f},
        InputSegment{4, -1, 7, 4}})
    EXPECT_FALSE(valid_segment(wrong)) << wrong.columns << " " << wrong.exponent_bits << " " << wrong.mantissa_bits;
}

}  // namespace
}  // namespace millrace
