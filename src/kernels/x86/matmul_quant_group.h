// One group of 32 columns of a quantized panel (matmul_pack.h) made ready to multiply: levels unpacked from their
// planes, scales and sub-scales as f32. Written over a vector type V (matmul_quant_avx512.cc, matmul_quant_avx2.cc).
// Included only by files compiled for one instruction set; everything is in an unnamed namespace so that nothing is
// shared between them.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "kernels/activation.h"
#include "kernels/x86/matmul_pack.h"

namespace millrace {
namespace {

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
  static constexpr int kOffsetBits = kOffset == 0 ? 0 : std::countr_zero(static_cast<unsigned>(kOffset));
  static_assert(kOffset == 0 || kOffset == 1 << kOffsetBits, "the start of a dot is made by a shift");
  static constexpr int kLargest = S.table == LevelTable::fp4   ? 28
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
constexpr TableBytes kFp4Raised = table_bytes(kFp4Levels, 16);

// How many bytes ahead of the group in hand weights are asked for: the more tokens a group meets, the less of the
// reading ahead the processor does by itself (with 8 tokens: 13 GB/s without, 28 at 2 KB, 36 at 4 KB, 41 at 8 KB).
// Panels follow each other, so the end of one asks for the start of the next.
[[gnu::always_inline]] inline int64_t prefetch_distance(int64_t tokens) {
  return tokens == 1 ? 2048 : tokens == 2 ? 4096 : 8192;
}

// Asks for the lines of group g of the cell at `cell`.
template <int N>
[[gnu::always_inline]] inline void prefetch_group(const uint8_t* cell, int64_t g) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  static constexpr int64_t kShare = kCell.bytes / kCell.groups;
  unroll<(kShare + 63) / 64>([&](auto line)
                                 __attribute__((always_inline)) { __builtin_prefetch(cell + g * kShare + line * 64); });
}

// What nobody has asked for yet when a piece of work begins.
[[gnu::always_inline]] inline void prefetch_start(const uint8_t* cell, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(cell + at);
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

// One group of one part (vector of rows) of a panel, ready to multiply.
template <typename V, int N>
struct Group {
  typename V::I w[8];
  typename V::F scale[2];  // dw; per16: of columns 0..15 and 16..31
  typename V::F minimum;   // mw
  typename V::I minimums;  // per16: int16 pairs
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
      v = V::or_and(v, V::template shift_left32<4>(V::shift_right32(high, static_cast<int>(field % 4 * 2))),
                    V::set1_32(48));
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
    out.scale[0] = V::load_e8m0(cell + kCell.scale_at + scale);
  } else {
    out.scale[0] = V::load_f16(cell + kCell.scale_at + scale * 2);
  }
  if constexpr (S.has_min) out.minimum = V::load_f16(cell + kCell.min_at + scale * 2);
  auto sub_scale = [&](int field) __attribute__((always_inline)) {
    typename V::I v = load_field<V, N>(cell, g * S.group_fields() + field, lane);
    return V::to_float(S.sub_bias == 0 ? v : V::add32(v, V::set1_32(-S.sub_bias)));
  };
  if constexpr (S.sub == SubScales::per32) {
    out.scale[0] = V::mul(out.scale[0], sub_scale(0));
    if constexpr (S.has_min) out.minimum = V::mul(out.minimum, sub_scale(1));
  }
  if constexpr (S.sub == SubScales::per16) {
    out.scale[1] = V::mul(out.scale[0], sub_scale(1));
    out.scale[0] = V::mul(out.scale[0], sub_scale(0));
    if constexpr (S.has_min) {
      out.minimums = V::pairs(load_field<V, N>(cell, 4 * g + 2, lane), load_field<V, N>(cell, 4 * g + 3, lane));
    }
  }
}

}  // namespace
}  // namespace millrace
