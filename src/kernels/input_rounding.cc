#include "kernels/input_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/part_kernels.h"

namespace millrace {
namespace {

// Of the least normal number, as a power of two; integers are subnormal.
int least_exponent(const InputSegment& segment) {
  return segment.exponent_bits == 0 ? segment.mantissa_bits : 2 - (1 << (segment.exponent_bits - 1));
}

RoundedNumbers numbers_of(const InputSegment& segment) {
  const int least = least_exponent(segment);
  return {.least_exponent = least,
          .mantissa_bits = segment.mantissa_bits,
          .largest = largest_number(segment),
          .clip = segment.clip,
          .factor = std::ldexp(1.0f, segment.mantissa_bits - least)};
}

template <typename Call>
void each_group(std::span<const InputSegment> rounding, const Call& call) {
  int64_t first = 0;
  for (const InputSegment& segment : rounding) {
    const RoundedNumbers numbers = numbers_of(segment);
    const int64_t end = first + segment.columns;
    for (; first < end; first += std::min<int64_t>(segment.group, end - first))
      call(numbers, first, std::min<int64_t>(segment.group, end - first));
  }
}

// Whether the numbers can be the int8 of a product (see the header's head).
bool are_levels(Activation kind, std::span<const InputSegment> rounding, int64_t cols) {
  if (!is_int8(kind)) return false;
  if (kind == Activation::q8_shift && (rounding.size() != 1 || rounding.front().group < cols)) return false;
  int64_t first = 0;
  for (const InputSegment& segment : rounding) {
    const RoundedNumbers numbers = numbers_of(segment);
    if (numbers.largest * numbers.factor > 127 || first % kActivationGroup != 0) return false;
    if (segment.group < segment.columns && segment.group % kActivationGroup != 0) return false;
    first += segment.columns;
  }
  return true;
}

void encode_levels(const PartKernels& kernels, Activation kind, std::span<const InputSegment> rounding, int64_t cols,
                   const float* x, uint8_t* destination) {
  const int64_t groups = (cols + kActivationGroup - 1) / kActivationGroup;
  std::memset(destination + groups * kQ8GroupBytes, 0, static_cast<size_t>(q8_unit_at(cols) - groups * kQ8GroupBytes));
  const bool one_unit = kind == Activation::q8_shift;
  float unit = 1;
  each_group(rounding, [&](const RoundedNumbers& numbers, int64_t first, int64_t n) {
    uint8_t* const records = destination + first / kActivationGroup * kQ8GroupBytes;
    const float scale = kernels.encode_group(numbers, x + first, n, one_unit, records);
    if (one_unit) unit = scale;
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

void round_inputs(const PartKernels& kernels, std::span<const InputSegment> rounding, float* x) {
  each_group(rounding, [&](const RoundedNumbers& numbers, int64_t first, int64_t n) {
    kernels.round_group(numbers, x + first, n);
  });
}

void round_inputs(std::span<const InputSegment> rounding, float* x) {
  round_inputs(part_kernels(Isa::ref), rounding, x);
}

void encode_rounded_row(const KernelTable& table, Activation kind, std::span<const InputSegment> rounding, int64_t cols,
                        float* x, uint8_t* destination) {
  const PartKernels& kernels = part_kernels(table.isa);
  if (!rounding.empty() && are_levels(kind, rounding, cols))
    return encode_levels(kernels, kind, rounding, cols, x, destination);
  round_inputs(kernels, rounding, x);
  table.encode_activation(kind, x, cols, destination);
}

}  // namespace millrace
