#include "kv/codecs/level_columns.h"

#include <array>

#include "tensor/half.h"

namespace millrace {

void LevelColumns::take_outliers(int64_t count, uint8_t* to) {
  column_level_kernels().ranges(*this);
  column_level_kernels().farthest(*this);
  float taken[kColumns], same[kColumns];
  uint16_t halves[kColumns];
  for (int64_t c = 0; c < kColumns; ++c) {
    float& value = values[place[c]][c];
    taken[c] = value;
    value = value == high[c] ? low[c] : high[c];
  }
  column_level_kernels().round_halves(taken, halves, same);
  for (int64_t c = 0; c < count; ++c, to += 4) {
    const auto at = static_cast<uint16_t>(place[c]);
    std::memcpy(to, &at, 2);
    std::memcpy(to + 2, halves + c, 2);
  }
}

void LevelColumns::set_grids(const float* scales, const float* zeros) {
  float steps[kColumns];
  column_level_kernels().round_halves(scales, scale_bits, steps);
  column_level_kernels().round_halves(zeros, zero_bits, zero);
  for (int64_t c = 0; c < kColumns; ++c) inverse[c] = steps[c] > 0 ? 1.0f / steps[c] : 0.0f;
}

void LevelColumns::set_grid(int64_t column, uint16_t scale, uint16_t zero_half) {
  scale_bits[column] = scale;
  zero_bits[column] = zero_half;
  const float step = f16_to_f32(scale);
  zero[column] = f16_to_f32(zero_half);
  inverse[column] = step > 0 ? 1.0f / step : 0.0f;
}

void LevelColumns::fit_codes(int bits, const float* codes) {
  const int last = (1 << bits) - 1;
  bool symmetric = true;
  for (int i = 0; i < last - i; ++i) symmetric &= codes[i] == -codes[last - i];
  std::array<float, 15> middles;
  for (int i = 0; i < last; ++i) middles[static_cast<size_t>(i)] = (codes[i] + codes[i + 1]) / 2;
  if (symmetric)
    column_level_kernels().symmetric_levels(*this, bits, middles.data() + (last + 1) / 2);
  else
    column_level_kernels().code_levels(*this, bits, middles.data());
}

}  // namespace millrace
