#include "kernels/input_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/activation.h"

namespace millrace {
namespace {

constexpr float kTinyInput = 0x1p-100f;  // zeros below this

// To nearest, ties to even, for |x| < 2^22.
float round_to_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

// -126 <= exponent <= 127.
float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

// Of the least normal number, as a power of two.
int least_exponent(const InputSegment& segment) { return 2 - (1 << (segment.exponent_bits - 1)); }

// The number of which all are multiples, as a power of two.
int unit_exponent(const InputSegment& segment) {
  return segment.exponent_bits == 0 ? 0 : least_exponent(segment) - segment.mantissa_bits;
}

// x becomes numbers; returns the scale.
float round_group(const InputSegment& segment, float* x, int64_t n) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    finite &= std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (!finite || largest < kTinyInput) {
    std::fill_n(x, n, 0.0f);
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float most = largest_number(segment), range = segment.clip * largest;
  const float inverse = most / range;
  for (int64_t i = 0; i < n; ++i) x[i] = nearest_number(segment, std::clamp(x[i] * inverse, -most, most));
  return range / most;
}

template <typename Call>
void each_group(std::span<const InputSegment> rounding, const Call& call) {
  int64_t first = 0;
  for (const InputSegment& segment : rounding) {
    const int64_t end = first + segment.columns;
    for (; first < end; first += std::min<int64_t>(segment.group, end - first))
      call(segment, first, std::min<int64_t>(segment.group, end - first));
  }
}

// Whether the numbers can be the int8 of a product (see the header's head).
bool are_levels(Activation kind, std::span<const InputSegment> rounding, int64_t cols) {
  if (!is_int8(kind)) return false;
  if (kind == Activation::q8_shift && (rounding.size() != 1 || rounding.front().group < cols)) return false;
  bool levels = true;
  each_group(rounding, [&](const InputSegment& segment, int64_t first, int64_t n) {
    levels &= largest_number(segment) * power_of_two(-unit_exponent(segment)) <= 127;
    levels &= first % kActivationGroup == 0 && (n % kActivationGroup == 0 || first + n == cols);
  });
  return levels;
}

// A record of kernels/activation.h.
void write_record(const float* numbers, int64_t n, float factor, float scale, uint8_t* record) {
  auto* q = reinterpret_cast<int8_t*>(record);
  int32_t negated[2] = {};
  for (int64_t i = 0; i < n; ++i) {
    const int level = static_cast<int>(numbers[i] * factor);
    q[i] = static_cast<int8_t>(level);
    negated[i / 16] -= level;
  }
  const int32_t sum = -(negated[0] + negated[1]), start = -sum * (1 << kQ8StartBits);
  const float sum_value = scale * static_cast<float>(sum);
  std::memcpy(record + kQ8ScaleAt, &scale, sizeof scale);
  std::memcpy(record + kQ8SumAt, &sum_value, sizeof sum_value);
  std::memcpy(record + kQ8StartAt, &start, sizeof start);
  std::memcpy(record + kQ8SumsAt, negated, sizeof negated);
}

void encode_levels(Activation kind, std::span<const InputSegment> rounding, int64_t cols, float* x,
                   uint8_t* destination) {
  std::memset(destination, 0, static_cast<size_t>(q8_unit_at(cols)));
  float unit = 1;
  each_group(rounding, [&](const InputSegment& segment, int64_t first, int64_t n) {
    const float factor = power_of_two(-unit_exponent(segment));
    float scale = round_group(segment, x + first, n) / factor;
    if (kind == Activation::q8_shift) unit = std::exchange(scale, 1.0f);
    for (int64_t i = 0; i < n; i += kActivationGroup)
      write_record(x + first + i, std::min<int64_t>(n - i, kActivationGroup), factor, scale,
                   destination + (first + i) / kActivationGroup * kQ8GroupBytes);
  });
  std::memcpy(destination + q8_unit_at(cols), &unit, sizeof unit);
}

}  // namespace

bool valid_segment(const InputSegment& segment) {
  const bool integers = segment.exponent_bits == 0;
  if (integers && (segment.mantissa_bits < 1 || segment.mantissa_bits > 7)) return false;
  if (segment.exponent_bits < 0 || segment.exponent_bits > 5) return false;
  if (!integers && (segment.mantissa_bits < 0 || segment.mantissa_bits > 3)) return false;
  return segment.columns >= 1 && segment.group >= 1 && segment.clip > 0 && segment.clip <= 1;
}

float largest_number(const InputSegment& segment) {
  const int exponent = segment.exponent_bits, mantissa = segment.mantissa_bits;
  if (exponent == 0) return static_cast<float>((1 << mantissa) - 1);
  if (exponent == 4 && mantissa == 3) return 448;
  const int most = (1 << exponent) - 1 - ((1 << (exponent - 1)) - 1);
  return std::ldexp(2.0f - std::ldexp(1.0f, -mantissa), most);
}

float nearest_number(const InputSegment& segment, float x) {
  if (segment.exponent_bits == 0) return round_to_even(x);
  const int own = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127;
  const int step = std::max(own, least_exponent(segment)) - segment.mantissa_bits;
  return round_to_even(x * power_of_two(-step)) * power_of_two(step);
}

void round_inputs(std::span<const InputSegment> rounding, float* x) {
  each_group(rounding, [&](const InputSegment& segment, int64_t first, int64_t n) {
    const float scale = round_group(segment, x + first, n);
    for (int64_t i = first; i < first + n; ++i) x[i] *= scale;
  });
}

void encode_rounded_row(const KernelTable& table, Activation kind, std::span<const InputSegment> rounding, int64_t cols,
                        float* x, uint8_t* destination) {
  if (!rounding.empty() && are_levels(kind, rounding, cols)) return encode_levels(kind, rounding, cols, x, destination);
  round_inputs(rounding, x);
  table.encode_activation(kind, x, cols, destination);
}

}  // namespace millrace
