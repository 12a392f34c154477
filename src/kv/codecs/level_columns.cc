#include "kv/codecs/level_columns.h"

#include "kv/codecs/code_middles.h"
#include "tensor/half.h"

namespace millrace {

void LevelColumns::take_outliers(int64_t count, uint8_t* to) {
  rows == values[0] ? column_level_kernels().ranges(*this) : column_level_kernels().copied_ranges(*this, values[0]);
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

void LevelColumns::set_grid(int64_t column, uint16_t step_half, uint16_t zero_half) {
  step_bits[column] = step_half;
  zero_bits[column] = zero_half;
  step[column] = f16_to_f32(step_half);
  zero[column] = f16_to_f32(zero_half);
  inverse[column] = step[column] > 0 ? 1.0f / step[column] : 0.0f;
}

void LevelColumns::fit_codes(const float* codes) {
  const CodeMiddles middles(bits, codes);
  middles.symmetric ? column_level_kernels().symmetric_levels(*this, middles.upper())
                    : column_level_kernels().code_levels(*this, middles.all.data());
}

}  // namespace millrace
