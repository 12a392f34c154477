// Reference rotary position embedding (Su et al., 2021, "RoFormer"): one head, in place.
#include "kernels/ops.h"

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

}  // namespace

void add_rope_ref(KernelTable& table) { table.rope = rope; }

}  // namespace millrace
