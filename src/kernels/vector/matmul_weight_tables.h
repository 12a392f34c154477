// Products with tables of at most 16 weights (codebook_products.h). They are those of Q8_0, except that a group's
// levels are looked up in tables (matmul_codebook_pack.h). A byte shuffle looks up levels in the tables of four rows in
// each 16 bytes:
//
//   2 bits      indices of one word of each row -> one of W[0..7], a row in each lane
//   3, 4 bits   indices of 4 rows (AVX2: 2) by 16 columns; four of these, words transposed -> W[0..3] or W[4..7]
//
// The look-up is done once for all tokens of a tile. Included only by files compiled for one instruction set.
#pragma once

#include <cstdint>

#include "kernels/vector/matmul_codebook_pack.h"
#include "kernels/vector/matmul_quant.h"

namespace millrace {
namespace {

static_assert(kTable16Rows == kPanelRows);
inline constexpr int kQ8_0 = 0;  // index in kQuantShapes
static_assert(kQuantShapes[kQ8_0].exact_scales());

// The tables and scales of a panel's rows.
template <typename V, int kBits>
struct Table16Rows {
  static constexpr int kParts = kPanelRows / V::kLanes;
  static constexpr int kVectors = 1 << (kBits - 2);  // number of vectors with a part's levels
  typename V::I levels[kParts][kVectors];
  typename V::F scales[kParts];

  [[gnu::always_inline]] void read(const uint8_t* table) {
    constexpr int kIn = 16 / V::kLanes;
    unroll<kParts>([&](auto part) __attribute__((always_inline)) {
      const uint8_t* at = table + part / kIn * (16 << kBits) + part % kIn * V::kLanes * 4;
      unroll<kVectors>([&](auto v) __attribute__((always_inline)) {
        levels[part][v] = V::load(at + v * 64);
        if constexpr (!Levels<V, kQ8_0>::kSigned) levels[part][v] = V::bit_xor(levels[part][v], V::set1_8(-128));
      });
      scales[part] = V::load_f32(table + table16_levels_bytes(kBits) + part * V::kLanes * 4);
    });
  }
};

// Offset of each row's table of four levels in 16 bytes.
constexpr TableBytes kTablesOfFour = {{0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12}};

// Looks up levels W[0..7] of group g of a cell for one vector of rows. `part`: index of the vector.
template <typename V, int kBits, int g, int part>
[[gnu::always_inline]] inline void look_up_levels(const uint8_t* cell, const Table16Rows<V, kBits>& rows,
                                                  typename V::I (&w)[8]) {
  using I = typename V::I;
  if constexpr (kBits == 2) {
    const uint8_t* planes = cell + g * 2 * kPanelRows * 4 + part * V::kLanes * 4;
    const I low[2] = {V::load(planes), V::load(planes + kPanelRows * 4)}, first = V::broadcast16(kTablesOfFour.at);
    unroll<8>([&](auto j) __attribute__((always_inline)) {
      const I index = V::template shift_right<j / 2 * 2>(low[j % 2]);
      w[j] = V::look_up(rows.levels[part][0], V::or_and(first, index, V::set1_8(3)));
    });
  } else {
    constexpr int kVectors = 16 / V::kLanes;  // number of vectors in a part's rows
    constexpr int kPart = part / kVectors, kAt = part % kVectors * V::kLanes * 4;
    constexpr int64_t kPartBytes = 256;
    const uint8_t* low = cell + (kBits == 4 ? g * 2 + kPart : kPart) * kPartBytes + kAt;
    const uint8_t* high = cell + 2 * kPartBytes + kAt;
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      constexpr int kRun = 2 * g + half;  // run of 16 columns
      I v[4];
      unroll<4>([&](auto q) __attribute__((always_inline)) {
        I index = V::load(low + q * 64);
        if constexpr (kBits == 4) {
          index = V::bit_and(V::template shift_right<4 * half>(index), V::set1_8(15));
          v[q] = V::look_up(rows.levels[part][q], index);
        } else {
          constexpr int kBit = 4 * kPart + kRun;  // belongs at bit 2
          index = V::or_and(V::set1_8(q % 2 * 8), V::template shift_right<2 * kRun>(index), V::set1_8(3));
          index = V::or_and(index, V::template shift_right<kBit - 2>(V::load(high + q * 64)), V::set1_8(4));
          v[q] = V::look_up(rows.levels[part][q / 2], index);
        }
      });
      const I a = V::unpack_low32(v[0], v[1]), b = V::unpack_high32(v[0], v[1]);
      const I c = V::unpack_low32(v[2], v[3]), d = V::unpack_high32(v[2], v[3]);
      w[4 * half] = V::unpack_low64(a, c);
      w[4 * half + 1] = V::unpack_high64(a, c);
      w[4 * half + 2] = V::unpack_low64(b, d);
      w[4 * half + 3] = V::unpack_high64(b, d);
    });
  }
}

// Reads the cells of a panel one after the other.
template <typename V, int kBits>
class Table16Cells {
 public:
  static constexpr int64_t kTableBytes = table16_table_bytes(kBits), kCellBytes = table16_cell_bytes(kBits);

  // Begins with cell `first`.
  [[gnu::always_inline]] Table16Cells(const Table16Panel& shape, const uint8_t* panel, int64_t first)
      : next_(panel), groups_(shape.groups) {
    if (first == 0) return;
    const int64_t table = (2 * first - 1) / groups_;  // table of the group before
    rows.read(panel + shape.table_at(table));
    left_ = (table + 1) * groups_ - 2 * first;
    next_ = panel + shape.cell_at(first - 1) + kCellBytes;
  }

  // Returns the next cell and sets `rows` to the tables of its first group. Calls table(at) if a table begins there.
  template <typename Table>
  [[gnu::always_inline]] const uint8_t* next(const Table& table) {
    const bool first = left_ == 0;
    if (first) left_ = groups_;
    cell_ = next_ + (first ? kTableBytes : 0) + (left_ == 1 ? kTableBytes : 0);
    if (first) read(next_, table);
    next_ = cell_ + kCellBytes;
    return cell_;
  }

  // Sets `rows` to the tables of the cell's second group.
  template <typename Table>
  [[gnu::always_inline]] void second(const Table& table) {
    if (left_ == 1) {
      read(cell_ - kTableBytes, table);
      left_ += groups_;
    }
    left_ -= 2;
  }

  Table16Rows<V, kBits> rows;

 private:
  template <typename Table>
  [[gnu::always_inline]] void read(const uint8_t* at, const Table& table) {
    table(at);
    rows.read(at);
  }

  const uint8_t* next_;
  const uint8_t* cell_ = nullptr;
  int64_t groups_;
  int64_t left_ = 0;  // number of groups that still use the current table, from the cell's first group on
};

template <typename V, int kBits>
struct Table16Panels {
  static constexpr int R = V::kParts;
  static constexpr int kTurns = kPanelRows / V::kLanes / R;
  static constexpr int64_t kCellBytes = table16_cell_bytes(kBits);
  using F = typename V::F;
  using Cells = Table16Cells<V, kBits>;
  using Levels32 = Group<V, kQ8_0, R, Meets::many, 0>;

  Table16Panel shape;

  explicit Table16Panels(const MatmulArgs& a) : shape(table16_panel(*a.codebook, a.cols)) {}

  int64_t bytes(int64_t /*cols*/) const { return shape.bytes(); }

  template <int g, int turn>
  [[gnu::always_inline]] static void load(const uint8_t* cell, const Table16Rows<V, kBits>& rows, Levels32& out) {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      constexpr int kPart = turn * R + r;
      look_up_levels<V, kBits, g, kPart>(cell, rows, out.part[r].w);
      finish_levels<V, Levels32>(out.part[r]);
      out.part[r].scale[0] = rows.scales[kPart];
    });
  }

  template <int64_t kBytes>
  [[gnu::always_inline]] static void prefetch(const uint8_t* lines) {
    unroll<kBytes / 64>([&](auto line) __attribute__((always_inline)) { prefetch_line(lines + line * 64); });
  }

  void one(const uint8_t* panel, int64_t /*cols*/, const uint8_t* x, F (&acc)[kPanelRows / V::kLanes]) const {
    Cells cells(shape, panel, 0);
    F sum[kTurns][1][R];
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { sum[turn][0][r] = V::zero_f(); });
    });
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const auto table = [&](const uint8_t* at) __attribute__((always_inline)) {
      prefetch<Cells::kTableBytes>(at + distance);
    };
    for (int64_t left = shape.cells; left > 0; --left) {
      const uint8_t* cell = cells.next(table);
      unroll<2>([&](auto g) __attribute__((always_inline)) {
        if constexpr (g == 1) cells.second(table);
        prefetch<kCellBytes / 2>(cell + distance + g * (kCellBytes / 2));
        unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
          Levels32 group;
          load<g, turn>(cell, cells.rows, group);
          multiply_group<1>(group, x, 0, sum[turn]);
        });
        x += kQ8GroupBytes;
      });
    }
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { acc[turn * R + r] = sum[turn][0][r]; });
    });
  }

  void many(const uint8_t* panel, int64_t /*cols*/, int turns, const Tokens& tokens, const TileCut& cut,
            F (&acc)[kTurns][kTokenTile][R]) const {
    Cells cells(shape, panel, 0);
    for (int turn = 0; turn < turns; ++turn) {
      for (int64_t t = 0; t < tokens.count; ++t) {
        for (int r = 0; r < R; ++r) acc[turn][t][r] = V::zero_f();
      }
    }
    const uint8_t* x = tokens.x;
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const auto table = [&](const uint8_t* at) __attribute__((always_inline)) {
      prefetch<Cells::kTableBytes>(at + distance);
    };
    for (int64_t left = shape.cells; left > 0; --left) {
      const uint8_t* cell = cells.next(table);
      for (int g = 0; g < 2; ++g, x += kQ8GroupBytes) {
        if (g == 1) cells.second(table);
        prefetch<kCellBytes / 2>(cell + distance + g * (kCellBytes / 2));
        for (int turn = 0; turn < turns; ++turn) {
          Levels32 group;
          unroll<2 * kTurns>([&](auto i) __attribute__((always_inline)) {  // shifts are constants
            if (i == g * kTurns + turn) load<i / kTurns, i % kTurns>(cell, cells.rows, group);
          });
          multiply_tokens(group, x, tokens.stride, cut, acc[turn]);
        }
      }
    }
  }
};

template <typename V>
void run_table16(const MatmulArgs& a) {
  switch (table16_panel(*a.codebook, a.cols).bits) {
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
  kernel.tiles_from = tiles_from;
  set_codebook(table, kernel);
}

}  // namespace
}  // namespace millrace
