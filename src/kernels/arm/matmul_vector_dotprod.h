// Quantized products with the dot product of four bytes (sdot), for 16 rows and up to 4 tokens at a time.
#pragma once

#include "kernels/arm/matmul_vector_neon.h"

namespace millrace {
namespace {

struct VectorDotprod : NeonOperations {
  static constexpr int kParts = 4;  // vectors of rows processed together
  template <typename Kind>
  static constexpr int kTileTokens = 4;

  // Adds levels W[kFirst .. kFirst + kCount) of part r times token t to sum[t][r].
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    unroll<kCount / 4>([&](auto run) __attribute__((always_inline)) {
      int8x16_t x[T];
      unroll<T>([&](auto t) __attribute__((always_inline)) {
        x[t] = vreinterpretq_s8_s32(load(row[t] + 4 * (kFirst + 4 * run)));
      });
      unroll<4>([&](auto i) __attribute__((always_inline)) {
        constexpr int j = kFirst + 4 * run + i, kQuad = i;
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          const int8x16_t w = vreinterpretq_s8_s32(group.template level<j - i>(i, r));
          unroll<T>([&](auto t)
                        __attribute__((always_inline)) { sum[t][r] = vdotq_laneq_s32(sum[t][r], w, x[t], kQuad); });
        });
      });
    });
  }
};

}  // namespace
}  // namespace millrace
