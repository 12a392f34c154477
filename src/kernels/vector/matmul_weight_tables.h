// Products with tables of at most 16 weights a row (codebook_rows.h), as with Q8_0: only how a group's levels come out
// of a panel (matmul_codebook_pack.h) differs.
//
//   indices of 4 rows (AVX2: 2) by 16 columns -> a permutation of bytes, whose table is that of each row
//   four of these, words transposed           -> W[0..3] or W[4..7], a row in each lane
//
// That is done once for all tokens of a tile. Included only by files compiled for one instruction set.
#pragma once

#include <cstdint>

#include "kernels/vector/matmul_codebook_pack.h"
#include "kernels/vector/matmul_quant.h"

namespace millrace {
namespace {

static_assert(kTable16Rows == kPanelRows);
inline constexpr int kQ8_0 = 0;  // in kQuantShapes
static_assert(kQuantShapes[kQ8_0].exact_scales());

// Levels W[0..7] of group g of a cell, of the rows of a vector; `part` counts vectors.
template <typename V, int kBits, int g, int part>
[[gnu::always_inline]] inline void look_up_levels(const uint8_t* cell, const typename V::I (&tables)[4],
                                                  typename V::I (&w)[8]) {
  using I = typename V::I;
  constexpr int kVectors = 16 / V::kLanes;  // in the rows of a part
  constexpr int kPart = part / kVectors, kAt = part % kVectors * V::kLanes * 4;
  constexpr int64_t kPartBytes = 256;
  const uint8_t* low = cell + (kBits == 4 ? g * 2 + kPart : kPart) * kPartBytes + kAt;
  const uint8_t* high = cell + 2 * kPartBytes + kAt;
  unroll<2>([&](auto half) __attribute__((always_inline)) {
    constexpr int kRun = 2 * g + half;  // of 16 columns
    I v[4];
    unroll<4>([&](auto q) __attribute__((always_inline)) {
      I index = V::load(low + q * 64);
      if constexpr (kBits == 4) {
        index = V::bit_and(V::template shift_right<4 * half>(index), V::set1_8(15));
      } else {
        index = V::bit_and(V::template shift_right<2 * kRun>(index), V::set1_8(3));
      }
      if constexpr (kBits == 3) {
        constexpr int kBit = 4 * kPart + kRun;  // belongs at bit 2
        index = V::or_and(index, V::template shift_right<kBit - 2>(V::load(high + q * 64)), V::set1_8(4));
      }
      v[q] = V::look_up(tables[q], index);
    });
    const I a = V::unpack_low32(v[0], v[1]), b = V::unpack_high32(v[0], v[1]);
    const I c = V::unpack_low32(v[2], v[3]), d = V::unpack_high32(v[2], v[3]);
    w[4 * half] = V::unpack_low64(a, c);
    w[4 * half + 1] = V::unpack_high64(a, c);
    w[4 * half + 2] = V::unpack_low64(b, d);
    w[4 * half + 3] = V::unpack_high64(b, d);
  });
}

// Tables and scales of a panel's rows.
template <typename V>
struct Table16Rows {
  static constexpr int kParts = kPanelRows / V::kLanes;
  typename V::I tables[kParts][4];
  typename V::F scales[kParts];

  [[gnu::always_inline]] void read(const uint8_t* panel) {
    constexpr int kVectors = 16 / V::kLanes;
    unroll<kParts>([&](auto part) __attribute__((always_inline)) {
      const uint8_t* at = panel + part / kVectors * 256 + part % kVectors * V::kLanes * 4;
      unroll<4>([&](auto q) __attribute__((always_inline)) {
        tables[part][q] = V::load(at + q * 64);
        if constexpr (!Levels<V, kQ8_0>::kSigned) tables[part][q] = V::bit_xor(tables[part][q], V::set1_8(-128));
      });
      scales[part] = V::load_f32(panel + kTable16ScalesAt + part * V::kLanes * 4);
    });
  }
};

template <typename V, int kBits>
struct Table16Panels {
  static constexpr int R = V::kParts;
  static constexpr int kTurns = kPanelRows / V::kLanes / R;
  static constexpr int64_t kCellBytes = table16_cell_bytes(kBits);
  using F = typename V::F;
  using Levels32 = Group<V, kQ8_0, R, Meets::many, 0>;

  explicit Table16Panels(const MatmulArgs& /*a*/) {}

  static int64_t bytes(int64_t cols) { return table16_panel_bytes(kBits, cols); }
  static int64_t cells(int64_t cols) { return (cols + kTable16CellColumns - 1) / kTable16CellColumns; }

  template <int g, int turn>
  [[gnu::always_inline]] static void load(const uint8_t* cell, const Table16Rows<V>& rows, Levels32& out) {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      constexpr int kPart = turn * R + r;
      look_up_levels<V, kBits, g, kPart>(cell, rows.tables[kPart], out.part[r].w);
      finish_levels<V, Levels32>(out.part[r]);
      out.part[r].scale[0] = rows.scales[kPart];
    });
  }

  // A group's share of the lines of a cell.
  [[gnu::always_inline]] static void prefetch(const uint8_t* cell, int64_t g) {
    const uint8_t* lines = cell + g * (kCellBytes / 2);
    unroll<kCellBytes / 128>([&](auto line) __attribute__((always_inline)) { prefetch_line(lines + line * 64); });
  }

  static void one(const uint8_t* panel, int64_t cols, const uint8_t* x, F (&acc)[kPanelRows / V::kLanes]) {
    Table16Rows<V> rows;
    rows.read(panel);
    F sum[kTurns][1][R];
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { sum[turn][0][r] = V::zero_f(); });
    });
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const uint8_t* cell = panel + kTable16CellsAt;
    for (int64_t left = cells(cols); left > 0; --left, cell += kCellBytes) {
      unroll<2>([&](auto g) __attribute__((always_inline)) {
        prefetch(cell + distance, g);
        unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
          Levels32 group;
          load<g, turn>(cell, rows, group);
          multiply_group<1>(group, x, 0, sum[turn]);
        });
        x += kQ8GroupBytes;
      });
    }
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { acc[turn * R + r] = sum[turn][0][r]; });
    });
  }

  static void many(const uint8_t* panel, int64_t cols, int turns, const Tokens& tokens, const TileCut& cut,
                   F (&acc)[kTurns][kTokenTile][R]) {
    Table16Rows<V> rows;
    rows.read(panel);
    for (int turn = 0; turn < turns; ++turn) {
      for (int64_t t = 0; t < tokens.count; ++t) {
        for (int r = 0; r < R; ++r) acc[turn][t][r] = V::zero_f();
      }
    }
    const uint8_t* x = tokens.x;
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const uint8_t* cell = panel + kTable16CellsAt;
    for (int64_t left = cells(cols); left > 0; --left, cell += kCellBytes) {
      for (int g = 0; g < 2; ++g, x += kQ8GroupBytes) {
        prefetch(cell + distance, g);
        for (int turn = 0; turn < turns; ++turn) {
          Levels32 group;
          unroll<2 * kTurns>([&](auto i) __attribute__((always_inline)) {  // shifts are constants
            if (i == g * kTurns + turn) load<i / kTurns, i % kTurns>(cell, rows, group);
          });
          multiply_tokens(group, x, tokens.stride, cut, acc[turn]);
        }
      }
    }
  }
};

template <typename V>
void run_table16(const MatmulArgs& a) {
  switch (table16_bits(*a.codebook)) {
    case 2: return QuantKernel<V, kQ8_0, Table16Panels<V, 2>>::run(a);
    case 3: return QuantKernel<V, kQ8_0, Table16Panels<V, 3>>::run(a);
    default: return QuantKernel<V, kQ8_0, Table16Panels<V, 4>>::run(a);
  }
}

inline void set_table16(KernelTable& table, void (*run)(const MatmulArgs&), int64_t tiles_from = 0) {
  MatmulKernel kernel;
  kernel.format = &table16_indices();
  kernel.layout = "table16";
  kernel.row_tile = kTable16Rows;
  kernel.run = run;
  kernel.takes = takes_table16;
  kernel.codebook_bytes = table16_bytes;
  kernel.pack_codebook = pack_table16;
  kernel.packs_tables = true;
  kernel.tiles_from = tiles_from;
  set_codebook(table, kernel);
}

}  // namespace
}  // namespace millrace
