// Reference rotary position embedding (Su et al., 2021, "RoFormer"): one head, or the rows of a block, in place.
#include <cstring>

#include "kernels/ops.h"
#include "tensor/half.h"

namespace millrace {
namespace {

void rope(float* head, const float* cos, const float* sin, int64_t rotated, bool half) noexcept {
  const int64_t pairs = rotated / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    float& first = half ? head[i] : head[2 * i];
    float& second = half ? head[i + pairs] : head[2 * i + 1];
    double a = first;
    double b = second;
    first = static_cast<float>(a * cos[i] - b * sin[i]);
    second = static_cast<float>(a * sin[i] + b * cos[i]);
  }
}

void rotate_rows(const RotatedRows& r) noexcept {
  const int64_t pairs = r.rotated / 2;
  for (int64_t t = 0; t < r.count; ++t) {
    const float* turn = r.row_turns + 2 * t * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const double c0 = r.block_turn[i], s0 = r.block_turn[pairs + i], c1 = turn[i], s1 = turn[pairs + i];
      const double cos = c0 * c1 - s0 * s1, sin = (r.back ? -1 : 1) * (s0 * c1 + c0 * s1);
      uint8_t* row = r.rows + 2 * t * r.dim;
      uint8_t* first = row + 2 * (r.half ? i : 2 * i);
      uint8_t* second = row + 2 * (r.half ? i + pairs : 2 * i + 1);
      uint16_t a, b;
      std::memcpy(&a, first, 2);
      std::memcpy(&b, second, 2);
      const double x = f16_to_f32(a), y = f16_to_f32(b);
      a = f32_to_f16(static_cast<float>(x * cos - y * sin));
      b = f32_to_f16(static_cast<float>(x * sin + y * cos));
      std::memcpy(first, &a, 2);
      std::memcpy(second, &b, 2);
    }
  }
}

}  // namespace

void add_rope_ref(KernelTable& table) {
  table.rope = rope;
  table.rotate_rows = rotate_rows;
}

}  // namespace millrace
