// The quantized matmul of both x86 levels, written over a vector type V (see VectorAvx512 in matmul_quant_avx512.cc):
// lanes are rows (panels of matmul_pack.h), R vectors of a panel's rows ("parts") are taken together.
//
// For each group of 32 columns the 8 level vectors of R panels are unpacked into registers once and then meet every
// token of the tile; the f32 sums of (token, panel) wait in L1:
//
//              W[0..7] of panel 0        W[0..7] of panel 1        (registers, unpacked from 2..8 bits)
//   token 0    8 dots + scale -> acc     8 dots + scale -> acc
//   token 1    ...
//
// A row's sum takes groups in ascending order whatever R, the tile or the number of tokens: always the same bits.
// The arithmetic is defined in kernels/quant_shape.h. Included only by files compiled for one instruction set;
// everything is in an unnamed namespace so that nothing is shared between them.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/activation.h"
#include "kernels/x86/matmul_pack.h"

namespace millrace {
namespace {

inline constexpr int64_t kTokenTile = 16;

// Calls f(integral_constant 0) ... f(integral_constant n - 1).
template <int n, typename F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

// What V wants to know about the level vectors that it multiplies.
template <typename V, int N>
struct Levels {
  static constexpr QuantShape S = kQuantShapes[N];
  // Levels above 127 are kept signed where V has no unsigned dot product that is safe for them.
  static constexpr bool kSigned = V::kPrefersSigned && (S.low_bits == 8 || S.table == LevelTable::iq4);
  static constexpr int kOffset = kSigned ? 0 : S.offset;
  static constexpr int kLargest = S.table == LevelTable::fp4   ? 24
                                  : S.table == LevelTable::iq4 ? 255
                                                               : (1 << (S.low_bits + S.high_bits)) - 1;
};

// Bytes of the 16-entry tables, raised by the offset where levels are unsigned.
struct TableBytes {
  alignas(16) uint8_t at[16];
};
constexpr TableBytes table_bytes(const int8_t (&values)[16], int raised) {
  TableBytes bytes = {};
  for (int i = 0; i < 16; ++i) bytes.at[i] = static_cast<uint8_t>(values[i] + raised);
  return bytes;
}
constexpr TableBytes kIq4Signed = table_bytes(kIq4Levels, 0);
constexpr TableBytes kIq4Raised = table_bytes(kIq4Levels, 128);
constexpr TableBytes kFp4Raised = table_bytes(kFp4Levels, 12);

// How far ahead of the group in hand memory is asked for: about what is in flight at full bandwidth with one token,
// less with several (the stream is slower, and L1 holds their activations). Panels follow each other, so the end of one
// asks for the start of the next. Left to the hardware's prefetch alone, one token reached 55 to 95 % of the bandwidth
// and 8 tokens took twice as long.
inline constexpr int64_t kPrefetchFew = 4096;
inline constexpr int64_t kFewTokens = 4;
inline constexpr int64_t kPrefetchMany = 2048;

template <typename V, int N>
[[gnu::always_inline]] inline void prefetch_group(const uint8_t* cell, int64_t g, int64_t bytes) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  static constexpr int64_t kShare = kCell.bytes / kCell.groups;
  const uint8_t* ahead = cell + g * kShare + bytes;
  unroll<(kShare + 63) / 64>([&](auto line) __attribute__((always_inline)) { __builtin_prefetch(ahead + line * 64); });
}

// W[0..7] of one group from its planes.
template <typename V, int N>
[[gnu::always_inline]] inline void unpack_levels(const uint8_t* planes, typename V::I (&w)[8]) {
  static constexpr QuantShape S = kQuantShapes[N];
  constexpr int64_t kPlane = kPanelRows * 4;
  constexpr int L = S.low_bits;
  constexpr int H = S.high_bits;
  typename V::I low[L];
  unroll<L>([&](auto p) __attribute__((always_inline)) { low[p] = V::load(planes + p * kPlane); });
  unroll<8>([&](auto j) __attribute__((always_inline)) {
    constexpr int kShift = j / L * L;
    if constexpr (L == 8) {
      w[j] = Levels<V, N>::kSigned ? V::bit_xor(low[j], V::set1_8(-128)) : low[j];
    } else {
      w[j] = V::bit_and(V::template shift_right<kShift>(low[j % L]), V::set1_8((1 << L) - 1));
    }
  });
  if constexpr (H != 0) {
    typename V::I high[H];
    unroll<H>([&](auto p) __attribute__((always_inline)) { high[p] = V::load(planes + (L + p) * kPlane); });
    unroll<8>([&](auto j) __attribute__((always_inline)) {
      constexpr int kBit = j / H * H;  // where the field is; it belongs at bit L
      w[j] = V::or_and(w[j], V::template shift_right<kBit - L>(high[j % H]), V::set1_8(((1 << H) - 1) << L));
    });
  }
  if constexpr (S.table != LevelTable::none) {
    const TableBytes& bytes = S.table == LevelTable::fp4 ? kFp4Raised : Levels<V, N>::kSigned ? kIq4Signed : kIq4Raised;
    typename V::I table = V::broadcast16(bytes.at);
    unroll<8>([&](auto j) __attribute__((always_inline)) { w[j] = V::look_up(table, w[j]); });
  }
}

// One group of one panel, ready to multiply.
template <typename V, int N>
struct Group {
  typename V::I w[8];
  typename V::F scale;    // dw
  typename V::F minimum;  // mw
  typename V::I sub0;     // per16: the two sub-scales, and what multiplies the pair of activation sums
  typename V::I sub1;
  typename V::I offsets;   // int16 pairs
  typename V::I minimums;  // int16 pairs
};

// Sub-scale field `field` of the group as int32 lanes.
template <typename V, int N>
[[gnu::always_inline]] inline typename V::I load_field(const uint8_t* cell, int64_t field, int64_t lane) {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  if constexpr (S.sub_bits == 8) {
    return V::load_i8(cell + kCell.field_at + field * kPanelRows + lane);
  } else {
    typename V::I v = V::load_u8(cell + kCell.field_at + field / 2 * kPanelRows + lane);
    v = V::bit_and(V::shift_right32(v, static_cast<int>(field % 2 * 4)), V::set1_32(15));
    if constexpr (S.sub_bits == 6) {
      typename V::I high = V::load_u8(cell + kCell.high_field_at + field / 4 * kPanelRows + lane);
      v = V::or_and(v, V::shift_left32(V::shift_right32(high, static_cast<int>(field % 4 * 2)), 4), V::set1_32(48));
    }
    return v;
  }
}

// Group g of the cell, V::kLanes rows from `lane` on.
template <typename V, int N>
[[gnu::always_inline]] inline void load_group(const uint8_t* cell, int64_t g, int64_t lane, Group<V, N>& out) {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  unpack_levels<V, N>(cell + g * kCell.group_bytes + lane * 4, out.w);
  int64_t scale = (S.per_group_scale() ? g : 0) * kPanelRows + lane;
  if constexpr (S.e8m0) {
    out.scale = V::load_e8m0(cell + kCell.scale_at + scale);
  } else {
    out.scale = V::load_f16(cell + kCell.scale_at + scale * 2);
  }
  if constexpr (S.has_min) out.minimum = V::load_f16(cell + kCell.min_at + scale * 2);
  auto sub_scale = [&](int field) __attribute__((always_inline)) {
    typename V::I v = load_field<V, N>(cell, g * S.group_fields() + field, lane);
    return S.sub_bias == 0 ? v : V::add32(v, V::set1_32(-S.sub_bias));
  };
  if constexpr (S.sub == SubScales::per32) {
    out.scale = V::mul(out.scale, V::to_float(sub_scale(0)));
    if constexpr (S.has_min) {
      out.minimum = V::mul(out.minimum, V::to_float(load_field<V, N>(cell, 2 * g + 1, lane)));
    }
  }
  if constexpr (S.sub == SubScales::per16) {
    out.sub0 = sub_scale(0);
    out.sub1 = sub_scale(1);
    if constexpr (S.has_min) {
      out.minimums = V::pairs(load_field<V, N>(cell, 4 * g + 2, lane), load_field<V, N>(cell, 4 * g + 3, lane));
    }
    if constexpr (Levels<V, N>::kOffset != 0) {
      typename V::I factor = V::set1_32(-Levels<V, N>::kOffset);
      out.offsets = V::pairs(V::mul32(out.sub0, factor), V::mul32(out.sub1, factor));
    }
  } else if constexpr (Levels<V, N>::kOffset != 0) {
    out.offsets = V::set1_16(-Levels<V, N>::kOffset);
  }
}

// Where the parts of an activation row start.
struct RowParts {
  int64_t scales, offsets, sums;
};

// acc[r] += group column_group of R panels times one token.
template <typename V, int N, int R>
[[gnu::always_inline]] inline void multiply_group(const Group<V, N> (&group)[R], const uint8_t* x,
                                                  const RowParts& parts, int64_t column_group,
                                                  typename V::F (&acc)[R]) {
  static constexpr QuantShape S = kQuantShapes[N];
  using I = typename V::I;
  using F = typename V::F;
  using Kind = Levels<V, N>;
  auto* levels = reinterpret_cast<const int8_t*>(x) + column_group * 32;
  const uint8_t* sums = x + parts.sums + column_group * 4;
  F sx = V::broadcast_f32(x + parts.scales + column_group * 4);
  I dot[R];
  if constexpr (S.sub != SubScales::per16) {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      dot[r] = Kind::kOffset != 0 ? V::dot_pairs(group[r].offsets, sums) : V::zero();
    });
    V::template dot<Kind, 0, 8>(group, levels, dot);
  } else {
    I dot1[R];
    unroll<R>([&](auto r) __attribute__((always_inline)) { dot[r] = dot1[r] = V::zero(); });
    V::template dot<Kind, 0, 4>(group, levels, dot);
    V::template dot<Kind, 4, 4>(group, levels, dot1);
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      dot[r] = V::add32(V::mul32(dot[r], group[r].sub0), V::mul32(dot1[r], group[r].sub1));
      if constexpr (Kind::kOffset != 0) dot[r] = V::add32(dot[r], V::dot_pairs(group[r].offsets, sums));
    });
  }
  unroll<R>([&](auto r) __attribute__((always_inline)) {
    acc[r] = V::fma(V::mul(group[r].scale, sx), V::to_float(dot[r]), acc[r]);
    if constexpr (S.has_min && S.sub == SubScales::per16) {
      F minimum = V::to_float(V::dot_pairs(group[r].minimums, sums));
      acc[r] = V::negated_fma(V::mul(group[r].minimum, sx), minimum, acc[r]);
    } else if constexpr (S.has_min) {
      F offset = V::broadcast_f32(x + parts.offsets + column_group * 4);
      acc[r] = V::negated_fma(group[r].minimum, offset, acc[r]);
    }
  });
}

// R parts of a panel, from row `lane` of it on, times `tokens` (<= kTokenTile; 1 when kOne) rows of x into acc.
template <typename V, int N, int R, bool kOne>
void multiply_parts(const uint8_t* panel, int64_t lane, int64_t cols, const uint8_t* x, int64_t x_stride,
                    int64_t tokens, typename V::F (&acc)[kTokenTile][R]) {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  const RowParts parts = {q8_scales_offset(cols), q8_offsets_offset(cols), q8_sums_offset(cols)};
  int64_t cells = quant_cells(kCell, cols);
  typename V::F one[R];
  unroll<R>([&](auto r) __attribute__((always_inline)) { one[r] = V::zero_f(); });
  for (int64_t t = 0; t < tokens; ++t) {
    for (int r = 0; r < R; ++r) acc[t][r] = V::zero_f();
  }
  const int64_t ahead = tokens <= kFewTokens ? kPrefetchFew : kPrefetchMany;
  for (int64_t c = 0; c < cells; ++c) {
    for (int64_t g = 0; g < kCell.groups; ++g) {
      Group<V, N> group[R];
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        load_group<V, N>(panel + c * kCell.bytes, g, lane + r * V::kLanes, group[r]);
      });
      prefetch_group<V, N>(panel + c * kCell.bytes, g, ahead);
      if constexpr (kOne) {
        multiply_group<V, N, R>(group, x, parts, c * kCell.groups + g, one);
      } else {
        const uint8_t* row = x;
        for (int64_t t = 0; t < tokens; ++t, row += x_stride) {
          multiply_group<V, N, R>(group, row, parts, c * kCell.groups + g, acc[t]);
        }
      }
    }
  }
  if constexpr (kOne) {
    unroll<R>([&](auto r) __attribute__((always_inline)) { acc[0][r] = one[r]; });
  }
}

template <typename V, int N, int R>
void run_panel(const MatmulArgs& a, int64_t row, int64_t token, int64_t tokens) {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  const uint8_t* panel = a.weights + row / kPanelRows * quant_panel_bytes(kCell, a.cols);
  const uint8_t* x = a.x + token * a.x_stride;
  for (int64_t lane = 0; lane < kPanelRows && row + lane < a.row_end; lane += R * V::kLanes) {
    typename V::F acc[kTokenTile][R];
    if (tokens == 1) {
      multiply_parts<V, N, R, true>(panel, lane, a.cols, x, a.x_stride, 1, acc);
    } else {
      multiply_parts<V, N, R, false>(panel, lane, a.cols, x, a.x_stride, tokens, acc);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int r = 0; r < R; ++r) {
        int64_t at = row + lane + r * V::kLanes;
        if (at < a.row_end) V::store(a.y + (token + t) * a.y_stride + at, acc[t][r], a.row_end - at);
      }
    }
  }
}

// One format on one vector type.
template <typename V, int N>
struct QuantKernel {
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
    return (rows + kPanelRows - 1) / kPanelRows * quant_panel_bytes(kCell, cols);
  }

  static void pack(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin,
                   int64_t row_end, uint8_t* packed) {
    pack_quant_panels(N, stored, rows, cols, row_begin, row_end, packed);
  }

  // Token tiles outermost: a tile of x stays in L1 while the piece's panels stream past from L2.
  static void run(const MatmulArgs& a) {
    for (int64_t token = 0; token < a.tokens; token += kTokenTile) {
      int64_t tokens = a.tokens - token < kTokenTile ? a.tokens - token : kTokenTile;
      for (int64_t row = a.row_begin; row < a.row_end; row += kPanelRows) {
        run_panel<V, N, V::kParts>(a, row, token, tokens);
      }
    }
  }
};

template <typename V, int N>
void add_quant_kernel(KernelTable& table) {
  using Kernel = QuantKernel<V, N>;
  MatmulKernel kernel;
  kernel.format = quant_format_at(N);
  kernel.layout = "panels32";
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
