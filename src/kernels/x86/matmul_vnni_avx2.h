// The quantized matmul of 256-bit vectors with 8-bit dot products (vpdpbusd): unsigned levels and signed activations,
// as for AVX-512; bits equal those of the other vector widths. AVX-VNNI encodes the instruction one way, AVX-512 VL
// another.
#pragma once

#include "kernels/x86/matmul_vector_avx2.h"

namespace millrace {
namespace {

struct VectorVnni256 : Avx2Operations {
  template <typename Kind>
  static constexpr int kTileTokens = 4;
  static constexpr bool kPrefersSigned = false;
  static constexpr int64_t kPrefetchOne8 = 8192;

  static I dot_quads(I sum, I levels, I quad) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, levels, quad);
#else
    return _mm256_dpbusd_epi32(sum, levels, quad);
#endif
  }

  // Adds levels W[kFirst .. kFirst + kCount) of part r times token t to sum[t][r].
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    steps<Group::kSpreads, kCount>([&](auto j) __attribute__((always_inline)) {
      I w[R];
      steps<Group::kSpreads, R>([&](auto r)
                                    __attribute__((always_inline)) { w[r] = group.template level<kFirst>(j, r); });
      repeat<T>([&](int t) __attribute__((always_inline)) {
        const I quad = broadcast32(row[t] + 4 * (kFirst + j));
        repeat<R>([&](int r) __attribute__((always_inline)) { sum[t][r] = dot_quads(sum[t][r], w[r], quad); });
      });
    });
  }
};

}  // namespace
}  // namespace millrace
