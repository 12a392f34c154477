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

void decode_affine(const AffineRows& a) noexcept {
  const int64_t unit = 64 / a.bits;
  const int64_t groups = a.group > 0 ? (a.cols + a.group - 1) / a.group : 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) {
      const uint8_t byte = a.levels[r * a.stride + c / unit * 8 + c % 8];
      const int level = byte >> (c % unit / 8 * a.bits) & ((1 << a.bits) - 1);
      const int64_t scale = a.group > 0 ? r * groups + c / a.group : c;
      const float value = half_at(a.scales, scale) * static_cast<float>(level) + half_at(a.zeros, scale);
      const uint16_t half = f32_to_f16(value);
      std::memcpy(a.out + 2 * (r * a.cols + c), &half, 2);
    }
  }
}

}  // namespace

void add_affine_rows_ref(KernelTable& table) { table.decode_affine = decode_affine; }

}  // namespace millrace
