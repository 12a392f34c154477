#include "kv/codecs/head_rotation.h"

#include <cmath>

#include "base/philox.h"

namespace millrace {
namespace {

// Sums and differences of neighbours `half` apart.
void butterflies(float* x, int64_t n, int64_t half) {
  for (int64_t i = 0; i < n; i += 2 * half) {
    for (int64_t j = i; j < i + half; ++j) {
      const float a = x[j], b = x[j + half];
      x[j] = a + b;
      x[j + half] = a - b;
    }
  }
}

// The first two steps at once, of four neighbours.
void butterflies_of_four(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += 4) {
    const float a = x[i] + x[i + 1], b = x[i] - x[i + 1], c = x[i + 2] + x[i + 3], d = x[i + 2] - x[i + 3];
    x[i] = a + c;
    x[i + 1] = b + d;
    x[i + 2] = a - c;
    x[i + 3] = b - d;
  }
}

// The same signs for all heads, drawn once. `round`: 1 for S1, 2 for S2.
void change_signs(float* head, int64_t head_dim, uint64_t round) {
  constexpr uint64_t kSeed = 0x7475726271;
  for (int64_t i = 0; i < head_dim; i += 32) {
    const uint32_t bits = philox4x32(kSeed, static_cast<uint64_t>(i), round)[0];
    for (int64_t j = i; j < head_dim && j < i + 32; ++j)
      if (bits >> (j - i) & 1) head[j] = -head[j];
  }
}

}  // namespace

void hadamard_head(float* head, int64_t head_dim) {
  const int64_t block = head_dim & -head_dim;
  int64_t half = 1;
  if (block >= 4) butterflies_of_four(head, head_dim), half = 4;
  for (; half < block; half *= 2) butterflies(head, head_dim, half);
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (int64_t i = 0; i < head_dim; ++i) head[i] *= scale;
}

void rotate_head_at_random(float* head, int64_t head_dim) {
  for (const uint64_t round : {1, 2}) {
    change_signs(head, head_dim, round);
    hadamard_head(head, head_dim);
  }
}

void rotate_head_back(float* head, int64_t head_dim) {
  for (const uint64_t round : {2, 1}) {
    hadamard_head(head, head_dim);
    change_signs(head, head_dim, round);
  }
}

}  // namespace millrace
