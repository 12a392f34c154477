// The quantized matmul of every instruction set, written for a vector type V (matmul_vector_*.h, matmul_quant_*.cc).
// Lanes are rows. R vectors of a panel's rows (parts, see matmul_pack.h) are processed together.
//
// For each group of 32 columns, the level vectors W[0..7] of R parts are unpacked once and then multiplied by every
// token of the tile. T = V::kTileTokens tokens are processed at a time, so that T * R independent chains of dots hide
// their latency. (8-bit levels need no unpacking; they are read in place for one token, on AVX2 for up to eight.)
//
//   for j in 0..7:                  W[j] of part 0     W[j] of part 1         AVX-512: 16 registers of levels,
//     x[0][4j..4j+3] broadcast      dot(0, 0) +=       dot(0, 1) +=           10 of dots, the rest for x and scales
//     x[1] ...                      dot(1, 0) +=       dot(1, 1) +=
//     ...                           ...                ...
//   acc(t, part) = fma(scale, dot << shift, acc)   the f32 sums of (token, part) are kept in L1
//
// A row's sum processes groups in ascending order, so its bits do not depend on R, T, the tile or the number of tokens.
// kernels/quant_shape.h defines the arithmetic. Included only by files compiled for one instruction set; everything is
// in an unnamed namespace, so that these files share no code.
#pragma once

#include <cstdint>

#include "kernels/vector/matmul_quant_group.h"

namespace millrace {
namespace {

inline constexpr int64_t kTokenTile = 32;
inline constexpr int64_t kFewTiles = 2;  // maximum number of tiles of tokens for Meets::few
// Minimum number of tokens for streaming stores, which bypass the caches. With this many tokens, y is larger than the
// caches near a core, and the distance of its rows is often a multiple of 4096 bytes. Normal stores of a tile would
// then all miss in a few cache sets and delay the next panel's sums.
inline constexpr int64_t kManyTokens = 128;
inline constexpr int64_t kTileBytes = 640 << 10;  // maximum bytes of a tile's activations, well within an L2 of 1 MB

// Adds one group of R parts times T tokens to acc[t][r]. `x`: the group's record in the first token's row.
template <int T, typename V, int N, int R, Meets kMeets, int kLines>
[[gnu::always_inline]] inline void multiply_group(const Group<V, N, R, kMeets, kLines>& group, const uint8_t* x,
                                                  int64_t x_stride, typename V::F (*acc)[R]) {
  static constexpr QuantShape S = kQuantShapes[N];
  using I = typename V::I;
  using F = typename V::F;
  using Kind = Levels<V, N>;
  const uint8_t* row[T];
  repeat<T>([&](int t) __attribute__((always_inline)) { row[t] = x + t * x_stride; });
  I dot[T][R];
  // The dots start at -offset times the activations' sum; first(row) returns this value for a token.
  auto start = [&](auto&& first) __attribute__((always_inline)) {
    repeat<T>([&](int t) __attribute__((always_inline)) {
      I value = V::zero();
      if constexpr (Kind::kOffset != 0) value = first(row[t]);
      repeat<R>([&](int r) __attribute__((always_inline)) { dot[t][r] = value; });
    });
  };
  if constexpr (S.sub != SubScales::per16) {
    start([](const uint8_t* of) __attribute__((always_inline)) {
      return V::template shift_left32<Kind::kOffsetBits - kQ8StartBits>(V::broadcast32(of + kQ8StartAt));
    });
    V::template dot<Kind, 0, 8>(group, row, dot);
    repeat<T>([&](int t) __attribute__((always_inline)) {
      const I shift = S.exact_scales() ? V::zero() : V::broadcast32(row[t] + kQ8ShiftAt);
      const F scale = S.exact_scales() ? V::broadcast_f32(row[t] + kQ8ScaleAt) : V::zero_f();
      repeat<R>([&](int r) __attribute__((always_inline)) {
        F sum;
        if constexpr (S.exact_scales()) {
          sum = V::fma(V::mul(group.part[r].scale[0], scale), V::to_float(dot[t][r]), acc[t][r]);
        } else {
          sum = V::fma(group.part[r].scale[0], V::to_float(V::shift_left_by(dot[t][r], shift)), acc[t][r]);
        }
        if constexpr (S.has_min) sum = V::negated_fma(group.part[r].minimum, V::broadcast_f32(row[t] + kQ8SumAt), sum);
        acc[t][r] = sum;
      });
    });
  } else {
    F inner[T][R];
    start([](const uint8_t* of) __attribute__((always_inline)) {
      return V::template shift_left32<Kind::kOffsetBits>(V::broadcast32(of + kQ8SumsAt));
    });
    V::template dot<Kind, 0, 4>(group, row, dot);
    repeat<T>([&](int t) __attribute__((always_inline)) {
      repeat<R>([&](int r) __attribute__((always_inline)) {
        inner[t][r] = V::mul(group.part[r].scale[0], V::to_float(dot[t][r]));
      });
    });
    start([](const uint8_t* of) __attribute__((always_inline)) {
      return V::template shift_left32<Kind::kOffsetBits>(V::broadcast32(of + kQ8SumsAt + 4));
    });
    V::template dot<Kind, 4, 4>(group, row, dot);
    repeat<T>([&](int t) __attribute__((always_inline)) {
      F scale = V::broadcast_f32(row[t] + kQ8ScaleAt);
      repeat<R>([&](int r) __attribute__((always_inline)) {
        F sum = V::fma(group.part[r].scale[1], V::to_float(dot[t][r]), inner[t][r]);
        if constexpr (S.has_min) {  // x has negated sums
          I pair = V::pairs(V::broadcast32(row[t] + kQ8SumsAt), V::broadcast32(row[t] + kQ8SumsAt + 4));
          sum = V::fma(group.part[r].minimum, V::to_float(V::dot_pairs(group.part[r].minimums, pair)), sum);
        }
        acc[t][r] = V::fma(scale, sum, acc[t][r]);
      });
    });
  }
}

// Splits tokens into tiles of at most `most` tokens, as evenly as possible, so that no tile has only one or two chains
// of dots.
struct TileCut {
  int64_t tiles = 0;   // number of tiles
  int64_t longer = 0;  // number of first tiles that have one token more than `size`
  int64_t size = 0;
};
inline TileCut cut_tiles(int64_t tokens, int64_t most) {
  const int64_t tiles = (tokens + most - 1) / most;
  return {tiles, tokens % tiles, tokens / tiles};
}

// Returns the maximum number of tokens in a tile.
template <typename V, int N>
constexpr int tile_tokens(Meets meets) {
  const bool wide = kQuantShapes[N].whole_bytes() && meets == Meets::few && V::kFewTokens > 0;
  return wide ? V::kFewTokens : V::template kTileTokens<Levels<V, N>>;
}

// Variant for two or more tokens.
template <typename V, int N, int R, Meets kMeets, int kLines>
[[gnu::always_inline]] inline void multiply_tokens(const Group<V, N, R, kMeets, kLines>& group, const uint8_t* x,
                                                   int64_t x_stride, const TileCut& cut, typename V::F (*acc)[R]) {
  constexpr int kMax = tile_tokens<V, N>(kMeets);
  auto multiply = [&](int64_t tile, const auto& by) __attribute__((always_inline)) {
    const int64_t tokens = cut.size + (tile < cut.longer ? 1 : 0);
    unroll<kMax - 1>([&](auto less) __attribute__((always_inline)) {  // no tile has one token
      constexpr int T = kMax - less;
      if (tokens == T) multiply_group<T>(by, x, x_stride, acc);
    });
    x += tokens * x_stride;
    acc += tokens;
  };
  using G = Group<V, N, R, kMeets, kLines>;
  if constexpr (G::kDirect ? kMax > V::template kTileTokens<Levels<V, N>> : G::kSpreads) {
    multiply(0, group);
    if (cut.tiles > 1) multiply(1, group.prefetched());  // few tokens have at most two tiles
  } else {
    for (int64_t tile = 0; tile < cut.tiles; ++tile) multiply(tile, group);
  }
}

// The activations by which a panel is multiplied.
struct Tokens {
  const uint8_t* x = nullptr;
  int64_t stride = 0;   // bytes
  int64_t count = 0;    // <= kTokenTile
  int64_t unit_at = 0;  // byte offset of a row's unit

  template <typename V>
  typename V::F unit(int64_t t) const {
    return V::broadcast_f32(x + t * stride + unit_at);
  }
};

// Multiplies the first most_turns * R parts of a panel by the tokens, R parts at a time, so that memory is read as one
// stream.
template <typename V, int N, int R, Meets kMeets>
void multiply_panel(const uint8_t* panel, int64_t cells, int most_turns, const Tokens& tokens, const TileCut& cut,
                    typename V::F (&acc)[kPanelRows / V::kLanes / R][kTokenTile][R]) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  constexpr int kTurns = kPanelRows / V::kLanes / R;
  constexpr int kLines = (kGroupLines<N> + kTurns - 1) / kTurns;
  const int turns = kTurns == 1 ? 1 : most_turns;
  for (int turn = 0; turn < turns; ++turn) {
    for (int64_t t = 0; t < tokens.count; ++t) {
      for (int r = 0; r < R; ++r) acc[turn][t][r] = V::zero_f();
    }
  }
  const uint8_t* x = tokens.x;
  const uint8_t* cell = panel + kCell.head_bytes;
  const int64_t distance = prefetch_distance(kPrefetchQuant);
  CellFields<V, N> fields;
  for (; cells > 0; --cells, cell += kCell.bytes) {
    const uint8_t* sub = fields.read(cell);
    for (int64_t g = 0; g < kCell.groups; ++g, x += kQ8GroupBytes) {
      for (int turn = 0; turn < turns; ++turn) {
        Group<V, N, R, kMeets, kLines> group;
        load_group(panel, cell, sub, g, turn * R * V::kLanes, cell + distance, turn * kLines, group);
        multiply_tokens(group, x, tokens.stride, cut, acc[turn]);
      }
    }
  }
}

// Variant for one token: the sums stay in registers.
template <typename V, int N, int R>
void multiply_one(const uint8_t* panel, int64_t cells, const uint8_t* x, typename V::F (&acc)[kPanelRows / V::kLanes]) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  constexpr int kTurns = kPanelRows / V::kLanes / R;
  typename V::F sum[kTurns][1][R];
  unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
    repeat<R>([&](int r) __attribute__((always_inline)) { sum[turn][0][r] = V::zero_f(); });
  });
  const uint8_t* cell = panel + kCell.head_bytes;
  const int64_t distance = prefetch_distance(kQuantShapes[N].whole_bytes() ? V::kPrefetchOne8 : kPrefetchQuant);
  CellFields<V, N> fields;
  for (; cells > 0; --cells, cell += kCell.bytes) {
    const uint8_t* sub = fields.read(cell);
    for (int64_t g = 0; g < kCell.groups; ++g, x += kQ8GroupBytes) {
      unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
        Group<V, N, R, Meets::one, turn == 0 ? kGroupLines<N> : 0> group;
        load_group(panel, cell, sub, g, turn * R * V::kLanes, cell + distance, 0, group);
        multiply_group<1>(group, x, 0, sum[turn]);
      });
    }
  }
  unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
    repeat<R>([&](int r) __attribute__((always_inline)) { acc[turn * R + r] = sum[turn][0][r]; });
  });
}

// Multiplies panels of cells, for QuantKernel.
template <typename V, int N>
struct CellPanels {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  static constexpr int R = V::kParts;
  static constexpr int kTurns = kPanelRows / V::kLanes / R;

  explicit CellPanels(const MatmulArgs& /*a*/) {}

  static int64_t bytes(int64_t cols) { return quant_panel_bytes(kCell, cols); }

  static void one(const uint8_t* panel, int64_t cols, const uint8_t* x, typename V::F (&acc)[kPanelRows / V::kLanes]) {
    // Bytes that are multiplied in place are processed in memory order.
    constexpr int kAll = kPanelRows / V::kLanes;
    multiply_one<V, N, S.whole_bytes() ? kAll : R>(panel, quant_cells(kCell, cols), x, acc);
  }

  static void many(const uint8_t* panel, int64_t cols, int turns, const Tokens& tokens, const TileCut& cut,
                   typename V::F (&acc)[kTurns][kTokenTile][R]) {
    const int64_t cells = quant_cells(kCell, cols);
    constexpr bool kWide = S.whole_bytes() && V::kFewTokens > 0;
    constexpr bool kFewDiffer = Levels<V, N>::kSigned || kWide || V::template kSpreads<N>;
    constexpr Meets kFew = kFewDiffer ? Meets::few : Meets::many;
    const TileCut few = kWide ? cut_tiles(tokens.count, tile_tokens<V, N>(kFew)) : cut;
    if (few.tiles <= kFewTiles) {
      multiply_panel<V, N, R, kFew>(panel, cells, turns, tokens, few, acc);
    } else {
      multiply_panel<V, N, R, Meets::many>(panel, cells, turns, tokens, cut, acc);
    }
  }
};

// The kernel for one format and one vector type. Codebooks use other `Panels` (matmul_weight_tables.h,
// matmul_codewords.h).
template <typename V, int N, typename Panels = CellPanels<V, N>>
struct QuantKernel {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  static constexpr int R = V::kParts;

  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return (rows + kPanelRows - 1) / kPanelRows * quant_panel_bytes(kCell, cols);
  }

  static void pack(const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    pack_quant_panels(N, stored, rows, cols, row_begin, row_end, packed, scales);
  }

  // Token tiles are the outermost loop: a tile of x stays in L2 (and a group's records of it in L1) while the panels
  // stream past.
  static void run(const MatmulArgs& a) {
    const Panels panels(a);
    const int64_t panel_bytes = panels.bytes(a.cols);
    const uint8_t* weights = a.weights + a.row_begin / kPanelRows * panel_bytes;
    const int64_t tile = a.x_stride * kTokenTile <= kTileBytes ? kTokenTile : kTokenTile / 2;
    const bool past_caches = a.tokens >= kManyTokens;
    prefetch_start(weights, kPrefetchQuant + kPrefetchBeyond);
    for (int64_t token = 0; token < a.tokens; token += tile) {
      const int64_t count = a.tokens - token < tile ? a.tokens - token : tile;
      const Tokens tokens = {a.x + token * a.x_stride, a.x_stride, count, q8_unit_at(a.cols)};
      float* y = a.y + token * a.y_stride;
      const uint8_t* panel = weights;
      for (int64_t row = a.row_begin; row < a.row_end; row += kPanelRows, panel += panel_bytes) {
        run_panel(panels, panel, a.cols, tokens, y + row, a.y_stride, a.row_end - row, past_caches);
      }
    }
    if (past_caches) V::fence();
  }

  // Returns the unit of token t times the unit of the format.
  [[gnu::always_inline]] static typename V::F unit_of(const uint8_t* panel, const Tokens& tokens, int64_t t) {
    const typename V::F unit = tokens.template unit<V>(t);
    if constexpr (kCell.head_bytes > 0) return V::mul(unit, V::broadcast_f32(panel + kFormatUnitAt));
    return unit;
  }

  // Computes y[t][0..rows) = panel times token t. Uses streaming stores if `past_caches` is true and y is in whole
  // vectors.
  static void run_panel(const Panels& panels, const uint8_t* panel, int64_t cols, const Tokens& tokens, float* y,
                        int64_t y_stride, int64_t rows, bool past_caches) {
    past_caches = past_caches && rows >= kPanelRows && reinterpret_cast<uintptr_t>(y) % 64 == 0 && y_stride % 16 == 0;
    if (tokens.count == 1) {
      typename V::F acc[kPanelRows / V::kLanes];
      panels.one(panel, cols, tokens.x, acc);
      const typename V::F unit = unit_of(panel, tokens, 0);
      for (int64_t at = 0; at < kPanelRows && at < rows; at += V::kLanes) {
        V::store(y + at, V::mul(acc[at / V::kLanes], unit), rows - at);
      }
      return;
    }
    constexpr int kTurns = kPanelRows / V::kLanes / R;
    const int turns = rows <= R * V::kLanes ? 1 : kTurns;
    typename V::F acc[kTurns][kTokenTile][R];
    const TileCut cut = cut_tiles(tokens.count, V::template kTileTokens<Levels<V, N>>);
    panels.many(panel, cols, turns, tokens, cut, acc);
    for (int64_t t = 0; t < tokens.count; ++t) {
      const typename V::F unit = unit_of(panel, tokens, t);
      for (int64_t part = 0, at = 0; part < turns * R && at < rows; ++part, at += V::kLanes) {
        const typename V::F value = V::mul(acc[part / R][t][part % R], unit);
        if (past_caches) {
          V::store_past(y + t * y_stride + at, value);
        } else {
          V::store(y + t * y_stride + at, value, rows - at);
        }
      }
    }
  }
};

template <typename V, int N>
void add_quant_kernel(KernelTable& table) {
  using Kernel = QuantKernel<V, N>;
  MatmulKernel kernel;
  kernel.format = quant_format_at(N);
  kernel.layout = "cells32";
  kernel.row_tile = kPanelRows;
  kernel.packed_bytes = Kernel::packed_bytes;
  kernel.pack = Kernel::pack;
  kernel.run = Kernel::run;
  set_matmul(table, kernel);
}

template <typename V>
void add_quant_kernels(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) { add_quant_kernel<V, i>(table); });
}

}  // namespace
}  // namespace millrace
