// Shared parts of the float matmuls of AVX-512: 16 rows in a vector.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers initialize vectors from undefined ones
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "kernels/vector/matmul_float.h"

namespace millrace {
namespace {

struct Lanes16 {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTile = 12;  // tokens: 2 x 12 accumulators, 2 weights and a broadcast fill 27 registers
  static constexpr int kPanels = 2;
  static constexpr int kColumnParts = 1;  // number of parts in which a step's columns are multiplied
  // Number of panels that one and two tokens process together. For two tokens, two panels are faster in cache and
  // slower from memory; figures are in docs/performance.md. Prefetching by one token is off: the hardware prefetcher is
  // faster.
  static constexpr int kOnePanels = 4;
  static constexpr int kTwoPanels = 1;
  static constexpr bool kAsksForOne = false;
  static constexpr const char* kLayout = "panels32";
  static F zero() { return _mm512_setzero_ps(); }
  static F multiply_scale(F scale, F part, F acc) { return _mm512_fmadd_ps(scale, part, acc); }
  static F load_scales(const uint8_t* p) { return _mm512_loadu_ps(p); }
  // Loads the sums of the previous columns. `count`: valid values; may be 0 or less.
  static F load_sum(const float* y, int64_t count) {
    return count >= kLanes ? _mm512_loadu_ps(y) : _mm512_maskz_loadu_ps(lanes(count), y);
  }
  static __mmask16 lanes(int64_t count) { return static_cast<__mmask16>(count <= 0 ? 0 : (1u << count) - 1); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm512_storeu_ps(y, v);
    } else {
      _mm512_mask_storeu_ps(y, lanes(count), v);
    }
  }
};

}  // namespace
}  // namespace millrace
