// Reference decoder of levels under scales and zeros (AffineRows). Thread-safe: no state.
#include <cstring>

#include "kernels/ops.h"
#include "tensor/half.h"

namespace millrace {
namespace {

float half_at(const uint8_t* halves, int64_t i) noexcept {
  uint16_t bits;
  std::memcpy(&bits, halves + 2 * i, 2);
  return f16_to_f32(bits);
}

int level_at(const AffineRows& a, int64_t row, int64_t col) noexcept {
  const int64_t values = affine_unit_values(a.bits), within = col % values;
  const uint8_t* unit = a.levels + row * a.stride + col / values * affine_unit_bytes(a.bits);
  const int low_bits = a.bits == 4 ? 4 : 2;
  const int low = unit[within % 8] >> (within / 8 * low_bits) & ((1 << low_bits) - 1);
  return a.bits == 3 ? low | (unit[8 + within / 8] >> (within % 8) & 1) << 2 : low;
}

void decode_affine(const AffineRows& a) noexcept {
  const int64_t groups = a.group > 0 ? (a.cols + a.group - 1) / a.group : 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) {
      const int level = level_at(a, r, c);
      const int64_t scale = a.group > 0 ? r * groups + c / a.group : c;
      const float code = a.codes ? a.codes[level] : static_cast<float>(level);
      const float value = half_at(a.scales, scale) * code + half_at(a.zeros, scale);
      const uint16_t half = f32_to_f16(value);
      std::memcpy(a.out + 2 * (r * a.cols + c), &half, 2);
    }
  }
}

}  // namespace

void add_affine_rows_ref(KernelTable& table) { table.decode_affine = decode_affine; }

}  // namespace millrace
