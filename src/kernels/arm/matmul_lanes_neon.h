// Shared parts of the float matmuls of Arm: 8 rows in two registers. Panels and the order of sums are those of AVX2, so
// results have the same bits.
#pragma once

#include <arm_neon.h>

#include "kernels/vector/matmul_f8.h"
#include "kernels/vector/matmul_float.h"

namespace millrace {
namespace {

struct Lanes8 {
  struct F {
    float32x4_t a, b;  // rows 0 to 3, 4 to 7
  };
  static constexpr int kLanes = 8;
  static constexpr int kTile = 6;  // tokens: 2 x 6 sums fill 24 of 32 registers, 2 weights and a broadcast 5
  static constexpr int kPanels = 2;
  static constexpr int kColumnParts = 1;  // number of parts in which a step's columns are multiplied
  // Number of panels that one and two tokens process together, and true if one token prefetches. These values are not
  // measured.
  static constexpr int kOnePanels = 2;
  static constexpr int kTwoPanels = 2;
  static constexpr bool kAsksForOne = true;
  static constexpr const char* kLayout = "panels16";
  static F zero() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
  static F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
  static F load_f32(const uint8_t* p) {
    return {vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
  }
  static F broadcast_f32(const uint8_t* p) {
    const float32x4_t x = vld1q_dup_f32(reinterpret_cast<const float*>(p));
    return {x, x};
  }
  static F multiply_scale(F scale, F part, F acc) { return fma(scale, part, acc); }
  // Loads the sums of the previous columns. `count`: valid values; may be 0 or less.
  static F load_sum(const float* y, int64_t count) {
    if (count >= kLanes) return load_f32(reinterpret_cast<const uint8_t*>(y));
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = y[i];
    return load_f32(reinterpret_cast<const uint8_t*>(lanes));
  }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      vst1q_f32(y, v.a);
      vst1q_f32(y + 4, v.b);
      return;
    }
    float lanes[kLanes];
    vst1q_f32(lanes, v.a);
    vst1q_f32(lanes + 4, v.b);
    for (int64_t i = 0; i < count; ++i) y[i] = lanes[i];
  }
};

}  // namespace
}  // namespace millrace
