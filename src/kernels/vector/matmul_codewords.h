// Products with words of eight weights (codebook_products.h). They are those of Q8_0, except that a group's levels are
// looked up in tables of words (matmul_codewords_pack.h).
//
//   words of half the rows of a vector, 8 bytes each, added over the books    a: rows 0 1 4 5 ..   b: rows 2 3 6 7 ..
//   their even and odd 4-byte words                                           W[2i], W[2i + 1], a row in each lane
//
// The look-up is done once for all tokens of a tile. A table of 65536 words takes 512 KB, so with 16 bits the L2 cache
// limits the speed. Included only by files compiled for one instruction set.
#pragma once

#include <cstdint>

#include "kernels/vector/matmul_codewords_pack.h"
#include "kernels/vector/matmul_weight_tables.h"

namespace millrace {
namespace {

static_assert(kCodewordRows == kPanelRows);

inline constexpr int64_t kLargeTables = 32 << 10;

// Looks up levels W[0..7] of 32 columns for one vector of rows, from row `lane` of the panel on.
template <typename V, typename Index, int64_t lane>
[[gnu::always_inline]] inline void look_up_words(const CodewordTables& tables, const uint8_t* group,
                                                 typename V::I (&w)[8]) {
  using I = typename V::I;
  const auto* indices = reinterpret_cast<const Index*>(group);
  unroll<4>([&](auto step) __attribute__((always_inline)) {
    const int8_t* words = tables.words;
    const auto half = [&](auto first) __attribute__((always_inline)) {
      return V::load_words([&](auto i) __attribute__((always_inline)) {
        constexpr int64_t kRow = lane + i / 2 * 4 + i % 2 + first;
        return words + int64_t{indices[codeword_at(kRow)]} * kCodewordColumns;
      });
    };
    constexpr std::integral_constant<int, 0> kFirst;
    constexpr std::integral_constant<int, 2> kSecond;
    I a = half(kFirst), b = half(kSecond);
    for (int m = 1; m < tables.books; ++m) {
      indices += kCodewordRows;
      words += kCodewordColumns << tables.bits;
      a = V::add8(a, half(kFirst));
      b = V::add8(b, half(kSecond));
    }
    indices += kCodewordRows;
    if constexpr (!Levels<V, kQ8_0>::kSigned) {
      a = V::bit_xor(a, V::set1_8(-128));
      b = V::bit_xor(b, V::set1_8(-128));
    }
    w[2 * step] = V::even32(a, b);
    w[2 * step + 1] = V::odd32(a, b);
  });
}

template <typename V>
struct CodewordPanels {
  static constexpr int R = V::kParts;
  static constexpr int kTurns = kPanelRows / V::kLanes / R;
  using F = typename V::F;
  using Levels32 = Group<V, kQ8_0, R, Meets::many, 0>;

  CodewordTables tables;
  int64_t group_bytes;

  explicit CodewordPanels(const MatmulArgs& a)
      : tables(codeword_tables(*a.codebook)), group_bytes(4 * codeword_step_bytes(tables.bits, tables.books)) {}

  int64_t bytes(int64_t cols) const { return codeword_panel_bytes(tables.bits, tables.books, cols); }
  static int64_t groups(int64_t cols) { return (cols + kCodewordCellColumns - 1) / kCodewordCellColumns * 2; }

  template <typename Index, int turn>
  [[gnu::always_inline]] void load(const uint8_t* panel, const uint8_t* group, Levels32& out) const {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      constexpr int64_t kLane = (turn * R + r) * V::kLanes;
      look_up_words<V, Index, kLane>(tables, group, out.part[r].w);
      finish_levels<V, Levels32>(out.part[r]);
      out.part[r].scale[0] = V::load_f32(panel + kLane * 4);
    });
  }

  // For many tokens: not inlined, so that the products are compiled once.
  [[gnu::noinline]] void load_turn(int turn, const uint8_t* panel, const uint8_t* group, Levels32& out) const {
    unroll<kTurns>([&](auto one) __attribute__((always_inline)) {
      if (turn != one) return;
      if (codeword_index_bytes(tables.bits) == 1)
        load<uint8_t, one>(panel, group, out);
      else
        load<uint16_t, one>(panel, group, out);
    });
  }

  [[gnu::always_inline]] void prefetch(const uint8_t* lines) const {
    for (int64_t at = 0; at < group_bytes; at += 64) prefetch_line(lines + at);
  }

  template <typename Index>
  void one_of(const uint8_t* panel, int64_t cols, const uint8_t* x, F (&acc)[kPanelRows / V::kLanes]) const {
    F sum[kTurns][1][R];
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { sum[turn][0][r] = V::zero_f(); });
    });
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const uint8_t* group = panel + kCodewordCellsAt;
    for (int64_t left = groups(cols); left > 0; --left, group += group_bytes, x += kQ8GroupBytes) {
      prefetch(group + distance);
      unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
        Levels32 levels;
        load<Index, turn>(panel, group, levels);
        multiply_group<1>(levels, x, 0, sum[turn]);
      });
    }
    unroll<kTurns>([&](auto turn) __attribute__((always_inline)) {
      unroll<R>([&](auto r) __attribute__((always_inline)) { acc[turn * R + r] = sum[turn][0][r]; });
    });
  }

  void one(const uint8_t* panel, int64_t cols, const uint8_t* x, F (&acc)[kPanelRows / V::kLanes]) const {
    if (codeword_index_bytes(tables.bits) == 1)
      one_of<uint8_t>(panel, cols, x, acc);
    else
      one_of<uint16_t>(panel, cols, x, acc);
  }

  void many(const uint8_t* panel, int64_t cols, int turns, const Tokens& tokens, const TileCut& cut,
            F (&acc)[kTurns][kTokenTile][R]) const {
    for (int turn = 0; turn < turns; ++turn) {
      for (int64_t t = 0; t < tokens.count; ++t) {
        for (int r = 0; r < R; ++r) acc[turn][t][r] = V::zero_f();
      }
    }
    const uint8_t* x = tokens.x;
    const int64_t distance = prefetch_distance(kPrefetchQuant);
    const uint8_t* group = panel + kCodewordCellsAt;
    for (int64_t left = groups(cols); left > 0; --left, group += group_bytes, x += kQ8GroupBytes) {
      prefetch(group + distance);
      for (int turn = 0; turn < turns; ++turn) {
        Levels32 levels;
        load_turn(turn, panel, group, levels);
        multiply_tokens(levels, x, tokens.stride, cut, acc[turn]);
      }
    }
  }
};

// Prefetches a table that is larger than L1 in order. Otherwise its lines would be loaded one cache miss after the
// other.
inline void prefetch_words(const CodewordTables& tables) {
  const int64_t bytes = tables.books * kCodewordColumns << tables.bits;
  if (bytes > kLargeTables) prefetch_start(reinterpret_cast<const uint8_t*>(tables.words), bytes);
}

template <typename V>
void run_codewords(const MatmulArgs& a) {
  prefetch_words(codeword_tables(*a.codebook));
  QuantKernel<V, kQ8_0, CodewordPanels<V>>::run(a);
}

inline void set_codewords(KernelTable& table, void (*run)(const MatmulArgs&)) {
  MatmulKernel kernel;
  kernel.format = &codeword_indices();
  kernel.layout = "codewords";
  kernel.row_tile = kCodewordRows;
  kernel.run = run;
  kernel.takes = takes_codewords;
  kernel.codebook_bytes = codewords_bytes;
  kernel.pack_codebook = pack_codewords;
  set_codebook(table, kernel);
}

}  // namespace
}  // namespace millrace
