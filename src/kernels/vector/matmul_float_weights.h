// The weight types of matmul_float.h (F32, F16, BF16), which use fused multiply-adds, and those of matmul_f8.h, which
// convert to f16. L has the operations of an instruction set. In addition to those that matmul_float.h and matmul_f8.h
// use, it has:
//
//   load_f32(p), load_f16(p), broadcast_f32(p)
//   load_bf16<part>(p), broadcast_bf16<part>(p)   the first or second of each pair of columns
//   load_f8(p, even, odd)                         two columns of E4M3 codes, as the f16 of 2^-8 times their values
//   widen_row(x, steps, out)                      optional: `steps` pairs of BF16 columns of a token as f32
//   fma(x, y, z), mul(x, factor)                  x * y + z
//   fma_in_order(x, y, z)                         the same, kept in its place where registers are short
//
// In an unnamed namespace: see matmul_float.h.
#pragma once

#include <cstdint>

#include "kernels/vector/matmul_f8.h"
#include "kernels/vector/matmul_float.h"

namespace millrace {
namespace {

template <typename L>
struct F32Weights : L {
  using F = typename L::F;
  using V = F;
  static constexpr const char* kFormat = "f32";
  static constexpr Activation kActivation = Activation::f32;
  static constexpr int kStep = 1;
  static constexpr int kVectorBytes = L::kLanes * 4;
  template <int part>
  static V load(const uint8_t* p) {
    return L::load_f32(p);
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return L::broadcast_f32(p);
  }
  static F multiply_add(V w, V x, F acc) { return L::fma(w, x, acc); }
};

template <typename L>
struct F16Weights : F32Weights<L> {
  static constexpr const char* kFormat = "f16";
  static constexpr int kVectorBytes = L::kLanes * 2;
  template <int part>
  static typename L::F load(const uint8_t* p) {
    return L::load_f16(p);
  }
};

// Pairs are widened one column at a time, because two columns for each vector would not fit into registers together
// with the sums, and each sum must add its columns in ascending order.
template <typename L>
struct Bf16Weights : L {
  using F = typename L::F;
  using V = F;
  static constexpr const char* kFormat = "bf16";
  static constexpr Activation kActivation = Activation::bf16;
  static constexpr int kStep = 2;
  static constexpr int kColumnParts = 2;
  static constexpr int kVectorBytes = L::kLanes * 4;
  template <int part>
  static V load(const uint8_t* p) {
    return L::template load_bf16<part>(p);
  }
  template <int part>
  static V broadcast(const uint8_t* p) {
    return L::template broadcast_bf16<part>(p);
  }
  static V broadcast_wide(const uint8_t* p) { return L::broadcast_f32(p); }
  static F multiply_add(V w, V x, F acc) { return L::fma_in_order(w, x, acc); }
};

// An E4M3 that is shifted to the place of an f16 has 2^-8 times its value, also for subnormals. The fold's scale
// includes the factor 2^8, which is exact. NaN codes are already in the scale (pack_f8_panels).
template <typename L>
struct F8Weights : L {
  using F = typename L::F;
  struct V {  // two columns of L::kLanes rows, or of one token in every lane
    F even, odd;
  };
  static constexpr int kTile = 8;
  static constexpr int kPanels = 1;
  static constexpr const char* kLayout = "panels8";
  static V broadcast(const uint8_t* p) { return {L::broadcast_f32(p), L::broadcast_f32(p + 4)}; }
  static F multiply_add(V w, V x, F acc) { return L::fma(w.odd, x.odd, L::fma(w.even, x.even, acc)); }
  static F load_scales(const uint8_t* p) { return L::mul(L::load_f32(p), 256.0f); }
  static void load_quad(const uint8_t* p, V (&out)[2]) {
    for (int i = 0; i < 2; ++i) L::load_f8(p + 2 * L::kLanes * i, out[i].even, out[i].odd);
  }
};

}  // namespace
}  // namespace millrace
