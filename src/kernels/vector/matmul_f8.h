// FP8 E4M3 matmul of every instruction set: f32 activations, weights decoded in registers, one f32 scale per row and
// fold of 128 columns (kernels/fold.h). A panel is a run of folds:
//
//   | quad 0: `lanes` rows x 4 columns | quad 1 | ... | quad 31 | `lanes` float scales |
//
// The order of bytes within a quad depends on the instruction set: decoding leaves every row in its own lane
// (quad_byte() in matmul_pack_float.cc). Each fold is summed from zero in ascending order, then y += scale * fold.
// Everything is in an unnamed namespace; see matmul_float.h.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/fold.h"
#include "kernels/kernel_table.h"
#include "kernels/vector/matmul_float.h"
#include "kernels/vector/matmul_pack.h"

namespace millrace {
namespace {

template <typename W, int R, int T>
void multiply_f8_tile(const MatmulArgs& a, int64_t row, int64_t token) {
  constexpr int64_t kQuadBytes = W::kLanes * 4;
  int64_t folds = fold_count(a.cols);
  int64_t panel_bytes = folds * f8_fold_bytes(W::kLanes);
  const uint8_t* panel = a.weights + row / W::kLanes * panel_bytes;
  const uint8_t* x = a.x + token * a.x_stride;
  typename W::F acc[R][T];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) acc[r][t] = W::zero();
  }
  for (int64_t fold = 0; fold < folds; ++fold, panel += f8_fold_bytes(W::kLanes)) {
    int64_t left = a.cols - fold * kFoldColumns;
    int64_t quads = left >= kFoldColumns ? kFoldColumns / 4 : (left + 3) / 4;
    const uint8_t* w = panel;
    typename W::F part[R][T];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) part[r][t] = W::zero();
    }
    for (int64_t q = 0; q < quads; ++q, w += kQuadBytes, x += 16) {
      typename W::V weights[R][2];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        W::load_quad(w + r * panel_bytes, weights[r]);
        __builtin_prefetch(w + r * panel_bytes + kPrefetchFloat);
      }
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          typename W::V value = W::broadcast(x + t * a.x_stride + half * 8);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) part[r][t] = W::multiply_add(weights[r][half], value, part[r][t]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      typename W::F scale = W::load_scales(panel + r * panel_bytes + kFoldColumns * W::kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) acc[r][t] = W::multiply_scale(scale, part[r][t], acc[r][t]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    int64_t at = row + r * W::kLanes;
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) W::store(a.y + (token + t) * a.y_stride + at, acc[r][t], a.row_end - at);
  }
}

// Multiplies all panels of the call with T tokens, from `token` on.
template <typename W, typename Tiles, int R, int T>
void multiply_rows(const MatmulArgs& a, int64_t token) {
  int64_t row = a.row_begin;
  for (; row + (R - 1) * W::kLanes < a.row_end; row += R * W::kLanes) Tiles::template tile<R, T>(a, row, token);
  if constexpr (R > 1) {
    for (; row < a.row_end; row += W::kLanes) Tiles::template tile<1, T>(a, row, token);
  }
}

// Splits the tokens into as few tiles as kTile allows, of nearly equal size. Tiles are the outermost loop, so that a
// tile of x stays in cache while the panels stream past.
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
struct F8Tiles {
  template <int R, int T>
  static void tile(const MatmulArgs& a, int64_t row, int64_t token) {
    multiply_f8_tile<W, R, T>(a, row, token);
  }
};

template <typename W>
struct F8Kernel {
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return (rows + W::kLanes - 1) / W::kLanes * fold_count(cols) * f8_fold_bytes(W::kLanes);
  }
  static void pack(const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    pack_f8_panels(W::kLanes, stored, scales, rows, cols, row_begin, row_end, packed);
  }
};

template <typename W>
void add_f8_kernel(KernelTable& table) {
  MatmulKernel kernel;
  kernel.format = float_format("f8_e4m3", Activation::f32);
  kernel.layout = W::kLayout;
  kernel.row_tile = W::kLanes;
  kernel.packed_bytes = F8Kernel<W>::packed_bytes;
  kernel.pack = F8Kernel<W>::pack;
  kernel.run = run_tiles<W, F8Tiles<W>>;
  set_matmul(table, kernel);
}

}  // namespace
}  // namespace millrace
