// The float matmul of every instruction set (F32, F16, BF16 weights), written for a weight type W (matmul_float_*.cc,
// matmul_bf16_*.cc). Lanes are rows; steps of W::kStep columns are contiguous. A panel (matmul_pack.h) has W::kPanels
// vectors of rows for each step, so that any number of tokens reads it as one stream.
//
// A register tile is one panel by T tokens. In each step, R weight vectors and T broadcasts feed R * T fused
// multiply-adds. One or two tokens have too few chains of multiply-adds to hide the latency, so they process P panels
// together, each of which is a separate stream.
//
//             token 0  token 1 ... token T-1
//   vector 0   acc      acc          acc
//   vector R-1 acc      acc          acc
//
// Many tokens process the columns in blocks, which stay in L2 while all tokens use them. The sums are kept in y. The
// last tiles of a block prefetch the next block.
//
// Every accumulator takes the steps in ascending order, so the bits do not depend on R, T, P, blocks or the number of
// tokens. Included only by files compiled for one instruction set; everything is in an unnamed namespace.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/kernel_table.h"
#include "kernels/vector/matmul_pack.h"
#include "kernels/vector/unroll.h"

namespace millrace {
namespace {

template <typename W>
[[gnu::always_inline]] inline int64_t step_count(int64_t cols) {
  return (cols + W::kStep - 1) / W::kStep;
}

inline constexpr int64_t kBlockBytes = 256 << 10;  // bytes of a block in each panel
// Prefetch distances in bytes, over all panels that are processed together: to L1, and, in addition to that, to L2.
inline constexpr int64_t kPrefetchFloat = 2048;
inline constexpr int64_t kPrefetchFloatBeyond = 4096;
// Number of tiles of a block that prefetch the next block, each a share of it, so that memory is used steadily instead
// of in bursts. With two tiles of 8 tokens, this increased throughput from 360 to 505 GFLOP/s on a core that streams
// its weights from memory.
inline constexpr int64_t kPrefetchTiles = 4;

// BF16 tokens of a tile are widened to f32 once for two panels. The multiply-adds can then load them directly. Widening
// each broadcast would take a second instruction on the ports of the multiply-adds.
// Number of columns of kTile widened tokens: 12 KB, so that two panels also fit into L1.
inline constexpr int64_t kWideColumns = 256;
template <typename W>
inline constexpr bool kWidens = W::kColumnParts == 2 && requires {
  W::widen_row;
};

// A range of columns in a panel, and the addresses to prefetch meanwhile.
struct Steps {
  int64_t begin, end;
  int64_t prefetch;       // bytes from the first step
  int64_t prefetch_step;  // bytes per step; 0: none
};

// The activations of a tile from column steps.begin on, either as encoded or widened to f32.
struct TileTokens {
  const uint8_t* x;
  int64_t stride;  // bytes
};

// Multiplies columns [steps.begin, steps.end) of P panels, from `row` on, by T tokens, from `token` on.
template <typename W, int T, int P, bool kWide = false>
void multiply_tile(const MatmulArgs& a, int64_t row, int64_t token, TileTokens tokens, Steps steps) {
  constexpr int R = P * W::kPanels;
  constexpr int64_t kStepBytes = W::kPanels * W::kVectorBytes;
  const int64_t panel_bytes = step_count<W>(a.cols) * kStepBytes;
  const uint8_t* w = a.weights + row / (W::kPanels * W::kLanes) * panel_bytes + steps.begin * kStepBytes;
  const uint8_t* x = tokens.x;
  float* y = a.y + token * a.y_stride + row;
  const int64_t rows = a.row_end - row;
  const uint8_t* ahead = w + steps.prefetch;
  typename W::F acc[R][T];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
      acc[r][t] = steps.begin == 0 ? W::zero() : W::load_sum(y + t * a.y_stride + r * W::kLanes, rows - r * W::kLanes);
  }
  for (int64_t s = steps.begin; s < steps.end; ++s, w += kStepBytes, x += kWide ? 4 * W::kStep : 4) {
    auto ask = [&]() __attribute__((always_inline)) {
      if ((T == 1 && !W::kAsksForOne) || steps.prefetch_step == 0) return;
      // The adjacent panels are already being read: at a panel's end, skip to the panels after all of them.
      if (P > 1 && s == steps.end - steps.prefetch / kStepBytes) ahead += (P - 1) * panel_bytes;
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
#pragma GCC unroll 2
        for (int64_t line = 0; line < kStepBytes; line += 64) {
          const uint8_t* at = ahead + p * panel_bytes + line;
          __builtin_prefetch(at + kPrefetchFloatBeyond / P, 0, 2);
          __builtin_prefetch(at);
        }
      }
      ahead += steps.prefetch_step;
    };
    auto token_value = [&](auto part, int t) __attribute__((always_inline)) {
      if constexpr (kWide)
        return W::broadcast_wide(x + t * tokens.stride + part * 4);
      else
        return W::template broadcast<part>(x + t * tokens.stride);
    };
    auto weights_of = [&](int r) __attribute__((always_inline)) {
      return w + r / W::kPanels * panel_bytes + r % W::kPanels * W::kVectorBytes;
    };
    if constexpr (R > T) ask();
    unroll<W::kColumnParts>([&](auto part) __attribute__((always_inline)) {
      if constexpr (part > 0)
        asm("" : "+r"(x), "+r"(w));  // otherwise earlier loads stay live, and sums are spilled for them
      if constexpr (R > T) {         // the operand with fewer vectors stays in registers
        typename W::V values[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) values[t] = token_value(part, t);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          typename W::V weights = W::template load<part>(weights_of(r));
#pragma GCC unroll 16
          for (int t = 0; t < T; ++t) acc[r][t] = W::multiply_add(weights, values[t], acc[r][t]);
        }
      } else {
        typename W::V weights[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) weights[r] = W::template load<part>(weights_of(r));
        if constexpr (part == 0) ask();
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          typename W::V value = token_value(part, t);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) acc[r][t] = W::multiply_add(weights[r], value, acc[r][t]);
        }
      }
    });
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) W::store(y + t * a.y_stride + r * W::kLanes, acc[r][t], rows - r * W::kLanes);
  }
}

// Multiplies one block of columns of `panels` panels by all tokens, of which there are at least three. The tokens are
// split into as few tiles of nearly equal size as kTile allows, so no tile has fewer than three tokens.
template <typename W, bool kWide>
void multiply_block(const MatmulArgs& a, int64_t row, int64_t panels, Steps steps, int64_t tiles) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    using Run = void (*)(const MatmulArgs&, int64_t, int64_t, TileTokens, Steps);
    static_assert(W::kTile >= 5);
    static constexpr Run kRuns[] = {multiply_tile<W, i + 3, 1, kWide>...};
    constexpr int64_t kStepBytes = W::kPanels * W::kVectorBytes;
    const int64_t bytes = (steps.end - steps.begin) * kStepBytes;
    const int64_t shares = tiles < kPrefetchTiles ? tiles : kPrefetchTiles;
    alignas(64) float wide[kWide ? W::kTile * kWideColumns : 1];
    int64_t token = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t end = (tile + 1) * a.tokens / tiles;
      TileTokens tokens = {a.x + token * a.x_stride + steps.begin * 4, a.x_stride};
      if constexpr (kWide) {
        for (int64_t t = 0; t < end - token; ++t)
          W::widen_row(tokens.x + t * a.x_stride, steps.end - steps.begin, wide + t * kWideColumns);
        tokens = {reinterpret_cast<const uint8_t*>(wide), kWideColumns * 4};
      }
      steps.prefetch_step = tile < shares ? kStepBytes / shares : 0;
      steps.prefetch = tiles == 1 ? kPrefetchFloat : bytes + tile * bytes / shares;
      for (int64_t panel = 0; panel < panels; ++panel)
        kRuns[end - token - 3](a, row + panel * W::kPanels * W::kLanes, token, tokens, steps);
      token = end;
    }
  }
  (std::make_integer_sequence<int, W::kTile - 2>{});
}

// Multiplies all rows from `row` on by T tokens (one or two), P panels together, and the remaining panels in smaller
// groups.
template <typename W, int T, int P>
void multiply_together(const MatmulArgs& a, int64_t row) {
  constexpr int64_t kRows = W::kPanels * W::kLanes;
  for (; row + (P - 1) * kRows < a.row_end; row += P * kRows) {
    multiply_tile<W, T, P>(a, row, 0, {a.x, a.x_stride},
                           {0, step_count<W>(a.cols), kPrefetchFloat / P, W::kPanels * W::kVectorBytes});
  }
  if constexpr (P > 1) multiply_together<W, T, P / 2>(a, row);
}

// Multiplies all rows by all tokens (at least three), in blocks of at most `block` steps.
template <typename W, bool kWide>
void multiply_blocks(const MatmulArgs& a, int64_t tiles, int64_t block) {
  constexpr int64_t kRows = W::kPanels * W::kLanes;
  if (kWide && block > kWideColumns / W::kStep) block = kWideColumns / W::kStep;
  const int64_t all = step_count<W>(a.cols);
  for (int64_t row = a.row_begin; row < a.row_end;) {
    const int64_t panels = kWide && row + kRows < a.row_end ? 2 : 1;
    for (int64_t begin = 0; begin < all; begin += block)
      multiply_block<W, kWide>(a, row, panels, {begin, begin + block < all ? begin + block : all, 0, 0}, tiles);
    row += panels * kRows;
  }
}

template <typename W>
void run_float(const MatmulArgs& a) {
  if (a.tokens == 1) return multiply_together<W, 1, W::kOnePanels>(a, a.row_begin);
  if (a.tokens == 2) return multiply_together<W, 2, W::kTwoPanels>(a, a.row_begin);
  const int64_t tiles = (a.tokens + W::kTile - 1) / W::kTile;
  if (tiles == 1) return multiply_blocks<W, false>(a, tiles, step_count<W>(a.cols));
  multiply_blocks<W, kWidens<W>>(a, tiles, kBlockBytes / (W::kPanels * W::kVectorBytes));
}

template <typename W>
struct FloatKernel {
  static constexpr int kRows = W::kLanes * W::kPanels;
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return (rows + kRows - 1) / kRows * step_count<W>(cols) * W::kVectorBytes * W::kPanels;
  }
  static void pack(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    constexpr int kValueBytes = W::kVectorBytes / W::kLanes / W::kStep;
    pack_value_panels(kValueBytes, W::kStep, kRows, stored, rows, cols, row_begin, row_end, packed);
  }
};

template <typename W>
void add_float_kernel(KernelTable& table) {
  MatmulKernel kernel;
  kernel.format = float_format(W::kFormat, W::kActivation);
  kernel.layout = W::kLayout;
  kernel.row_tile = FloatKernel<W>::kRows;
  kernel.packed_bytes = FloatKernel<W>::packed_bytes;
  kernel.pack = FloatKernel<W>::pack;
  kernel.run = run_float<W>;
  set_matmul(table, kernel);
}

}  // namespace
}  // namespace millrace
