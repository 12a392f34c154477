// The float matmul of both x86 levels (F32, F16, BF16 weights), written over a weight type W (see the *_avx512.cc and
// *_avx2.cc files): lanes are rows, steps of W::kStep columns run along memory (panels of matmul_pack.h).
//
// A register tile of R panels by T tokens: per step R weight vectors and T broadcasts feed R * T fused multiply-adds.
//
//             token 0  token 1 ... token T-1
//   panel 0    acc      acc          acc
//   panel R-1  acc      acc          acc
//
// Every accumulator takes the steps in ascending order, so the bits do not depend on R, T or the number of tokens.
// Included only by files compiled for one instruction set; all of it is in an unnamed namespace.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/kernel_table.h"
#include "kernels/x86/matmul_pack.h"

namespace millrace {
namespace {

template <typename W>
[[gnu::always_inline]] inline int64_t step_count(int64_t cols) {
  return (cols + W::kStep - 1) / W::kStep;
}

inline constexpr int64_t kPrefetchFloat = 2048;  // bytes ahead; with one token the hardware's prefetch does better

template <typename W, int R, int T>
void multiply_tile(const MatmulArgs& a, int64_t row, int64_t token) {
  int64_t steps = step_count<W>(a.cols);
  int64_t panel_bytes = steps * W::kVectorBytes;
  const uint8_t* w = a.weights + row / W::kLanes * panel_bytes;
  const uint8_t* x = a.x + token * a.x_stride;
  typename W::F acc[R][T];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) acc[r][t] = W::zero();
  }
  for (int64_t s = 0; s < steps; ++s, w += W::kVectorBytes, x += 4) {
    typename W::V weights[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      weights[r] = W::load(w + r * panel_bytes);
      if constexpr (T > 1) __builtin_prefetch(w + r * panel_bytes + kPrefetchFloat);
    }
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      typename W::V value = W::broadcast(x + t * a.x_stride);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r][t] = W::multiply_add(weights[r], value, acc[r][t]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    int64_t at = row + r * W::kLanes;
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) W::store(a.y + (token + t) * a.y_stride + at, acc[r][t], a.row_end - at);
  }
}

template <typename W>
struct FloatTiles {
  template <int R, int T>
  static void tile(const MatmulArgs& a, int64_t row, int64_t token) {
    multiply_tile<W, R, T>(a, row, token);
  }
};

// All panels of the call times T tokens.
template <typename W, typename Tiles, int R, int T>
void multiply_rows(const MatmulArgs& a, int64_t token) {
  int64_t row = a.row_begin;
  for (; row + (R - 1) * W::kLanes < a.row_end; row += R * W::kLanes) Tiles::template tile<R, T>(a, row, token);
  if constexpr (R > 1) {
    for (; row < a.row_end; row += W::kLanes) Tiles::template tile<1, T>(a, row, token);
  }
}

// Takes tokens in as few tiles as kTile allows, of nearly equal size. Tiles are outermost, so that a tile of x stays in
// cache while the panels pass.
template <typename W, typename Tiles>
void run_tiles(const MatmulArgs& a) {
  if (a.tokens == 1) return multiply_rows<W, Tiles, W::kOnePanels, 1>(a, 0);
  [&]<int... i>(std::integer_sequence<int, i...>) {
    using Run = void (*)(const MatmulArgs&, int64_t);
    static constexpr Run kRuns[] = {multiply_rows<W, Tiles, W::kPanels, i + 1>...};
    int64_t tiles = (a.tokens + W::kTile - 1) / W::kTile;
    int64_t token = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t end = (tile + 1) * a.tokens / tiles;
      kRuns[end - token - 1](a, token);
      token = end;
    }
  }
  (std::make_integer_sequence<int, W::kTile>{});
}

template <typename W>
struct FloatKernel {
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return (rows + W::kLanes - 1) / W::kLanes * step_count<W>(cols) * W::kVectorBytes;
  }
  static void pack(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    constexpr int kValueBytes = W::kVectorBytes / W::kLanes / W::kStep;
    pack_value_panels(kValueBytes, W::kStep, W::kLanes, stored, rows, cols, row_begin, row_end, packed);
  }
};

template <typename W>
void add_float_kernel(KernelTable& table) {
  MatmulKernel kernel;
  kernel.format = float_format(W::kFormat, W::kActivation);
  kernel.layout = W::kLayout;
  kernel.row_tile = W::kLanes;
  kernel.packed_bytes = FloatKernel<W>::packed_bytes;
  kernel.pack = FloatKernel<W>::pack;
  kernel.run = run_tiles<W, FloatTiles<W>>;
  set_matmul(table, kernel);
}

}  // namespace
}  // namespace millrace
