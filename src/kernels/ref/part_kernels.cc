// Reference kernels of weights with parts (kernels/part_kernels.h): inputs that are changed and rounded, and sparse
// matrices.
#include "kernels/part_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/activation.h"

namespace millrace {
namespace {

constexpr float kTinyInput = 0x1p-100f;  // zeros below this

// To nearest, ties to even, for |x| < 2^22.
float round_to_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

// -126 <= exponent <= 127.
float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

float nearest(const RoundedNumbers& to, float x) {
  const int own = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127;
  const int step = std::max(own, to.least_exponent) - to.mantissa_bits;
  return round_to_even(x * power_of_two(-step)) * power_of_two(step);
}

// The scale of a group, 0 or NaN where it has no numbers, and what maps its values to them.
struct RoundedScale {
  RoundedScale(const RoundedNumbers& to, const float* x, int64_t n) {
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; ++i) {
      finite &= std::isfinite(x[i]);
      most = std::max(most, std::fabs(x[i]));
    }
    usable = finite && most >= kTinyInput;
    const float range = to.clip * most;
    inverse = to.largest / range;
    if (!usable)
      scale = finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    else
      scale = range / to.largest;
  }
  float number(const RoundedNumbers& to, float x) const {
    return nearest(to, std::clamp(x * inverse, -to.largest, to.largest));
  }

  float scale = 0, inverse = 0;
  bool usable = false;
};

void round_group(const RoundedNumbers& numbers, float* x, int64_t n) noexcept {
  const RoundedScale by(numbers, x, n);
  for (int64_t i = 0; i < n; ++i) x[i] = by.usable ? by.number(numbers, x[i]) * by.scale : by.scale;
}

void write_record(const int* levels, float scale, uint8_t* record) {
  int32_t negated[2] = {};
  for (int64_t i = 0; i < kActivationGroup; ++i) {
    record[i] = static_cast<uint8_t>(levels[i]);
    negated[i / 16] -= levels[i];
  }
  const int32_t sum = -(negated[0] + negated[1]), start = -sum * (1 << kQ8StartBits), shift = 0;
  const float sum_value = scale * static_cast<float>(sum);
  std::memcpy(record + kQ8ShiftAt, &shift, sizeof shift);
  std::memcpy(record + kQ8ScaleAt, &scale, sizeof scale);
  std::memcpy(record + kQ8SumAt, &sum_value, sizeof sum_value);
  std::memcpy(record + kQ8StartAt, &start, sizeof start);
  std::memcpy(record + kQ8SumsAt, negated, sizeof negated);
}

float encode_group(const RoundedNumbers& numbers, const float* x, int64_t n, bool unit_scale,
                   uint8_t* records) noexcept {
  const RoundedScale by(numbers, x, n);
  const float scale = by.scale / numbers.factor;
  for (int64_t first = 0; first < n; first += kActivationGroup, records += kQ8GroupBytes) {
    int levels[kActivationGroup] = {};
    for (int64_t i = 0; i < std::min(n - first, kActivationGroup) && by.usable; ++i)
      levels[i] = static_cast<int>(by.number(numbers, x[first + i]) * numbers.factor);
    write_record(levels, unit_scale ? 1 : scale, records);
  }
  return scale;
}

void shift_scale(const float* x, const float* shift, const float* scale, int64_t n, float* out) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const float from = shift ? x[i] - shift[i] : x[i];
    out[i] = scale ? from * scale[i] : from;
  }
}

void hadamard(float* x, int64_t n, int64_t block) noexcept {
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* part = x; part < x + n; part += block) {
    for (int64_t half = 1; half < block; half *= 2)
      for (int64_t i = 0; i < block; i += 2 * half)
        for (int64_t j = i; j < i + half; ++j) {
          const float a = part[j], b = part[j + half];
          part[j] = a + b;
          part[j + half] = a - b;
        }
    for (int64_t j = 0; j < block; ++j) part[j] *= scale;
  }
}

void mix_blocks(const MixedBlocks& of) noexcept {
  std::fill_n(of.out, of.count * of.block, 0.0f);
  for (int64_t a = 0; a < of.count; ++a) {
    float* const to = of.out + a * of.block;
    for (int64_t b = 0; b < of.count; ++b) {
      const float sign = of.matrix[a * of.row_step + b * of.column_step];
      const float* const from = of.x + b * of.block;
      for (int64_t j = 0; j < of.block; ++j) to[j] += sign * from[j];
    }
    for (int64_t j = 0; j < of.block; ++j) to[j] *= of.scale;
  }
}

void turn_tokens(const float* x, int64_t x_stride, int64_t tokens, int64_t cols, float* turned) noexcept {
  const int64_t width = turned_width(tokens);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t t = 0; t < width; ++t) turned[c * width + t] = t < tokens ? x[t * x_stride + c] : 0;
}

void add_sparse(const SparseRows& of) noexcept {
  const int64_t width = turned_width(of.tokens);
  for (int64_t r = 0; r < of.rows; ++r)
    for (int64_t t = 0; t < of.tokens; ++t) {
      float sum = 0;
      for (int64_t i = of.row_begin[r]; i < of.row_begin[r + 1]; ++i)
        sum += of.values[i] * of.turned[of.columns[i] * width + t];
      of.y[t * of.y_stride + r] += sum;
    }
}

}  // namespace

PartKernels part_kernels_ref() {
  return {round_group, encode_group, shift_scale, hadamard, mix_blocks, turn_tokens, add_sparse};
}

}  // namespace millrace
