// Loads one group of 32 columns of a quantized panel (matmul_pack.h) for multiplication: unpacks levels from their
// planes, and converts scales and sub-scales to f32. Written for a vector type V (matmul_quant_avx512.cc,
// matmul_quant_avx2.cc, matmul_vector_*.h). Included only by files compiled for one instruction set; everything is in
// an unnamed namespace, so that these files share no code.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/vector/matmul_pack.h"
#include "kernels/vector/unroll.h"

namespace millrace {
namespace {

// The form of levels that V multiplies.
template <typename V, int N>
struct Levels {
  static constexpr QuantShape S = kQuantShapes[N];
  // Signed levels are used if V has no unsigned dot product that is safe for levels above 127.
  static constexpr bool kSigned = V::kPrefersSigned && (S.low_bits == 8 || S.table == LevelTable::codes);
  static constexpr int kOffset = kSigned ? 0 : S.offset;
  static constexpr int kOffsetBits = kOffset == 0 ? 0 : std::countr_zero(static_cast<unsigned>(kOffset));
  static_assert(kOffset == 0 || kOffset == 1 << kOffsetBits, "the start of a dot is made by a shift");
  static constexpr int kLargest = S.table == LevelTable::fp4     ? 28
                                  : S.table == LevelTable::codes ? 255
                                                                 : ((1 << S.code_bits()) - 1) * S.step;
};

// Bytes of a 16-entry table, with the offset added.
struct TableBytes {
  alignas(16) uint8_t at[16];
};
constexpr TableBytes table_bytes(const int8_t (&values)[16], int raised) {
  TableBytes bytes = {};
  for (int i = 0; i < 16; ++i) bytes.at[i] = static_cast<uint8_t>(values[i] + raised);
  return bytes;
}
constexpr TableBytes kFp4Raised = table_bytes(kFp4Levels, 16);
// Shuffle that copies the highest byte of each 32-bit lane to all its four bytes.
constexpr TableBytes kTopBytes = {{3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15}};

// Prefetch distances in bytes: to L1, from the current group; to L2, in addition to the first distance. A core has few
// buffers for lines that are being loaded to L1. If L2 already has a line, its buffer is free again soon. One core of a
// Xeon (Sapphire Rapids class) read 12.2 GB/s with prefetches to L1 alone, 8 KB ahead, and 15.5 GB/s with both, while
// it multiplied 4 tokens by Q8_0. With Q4_0 and one token, it read 13.0 and 15.1 GB/s; plain reads reached 16.7. Panels
// are contiguous, so the end of a panel prefetches the start of the next one.
inline constexpr int64_t kPrefetchQuant = 2048;
inline constexpr int64_t kPrefetchBeyond = 4096;

// Prefetches to L1 and L2. `line`: the address at the first distance.
[[gnu::always_inline]] inline void prefetch_line(const uint8_t* line) {
  __builtin_prefetch(line + kPrefetchBeyond, 0, 2);
  __builtin_prefetch(line);
}

// Hides the constant from the compiler. Otherwise, it computes addresses from the cell's end and schedules prefetches
// out of order.
[[gnu::always_inline]] inline int64_t prefetch_distance(int64_t distance) {
  asm("" : "+r"(distance));
  return distance;
}

// Number of cache lines per group of a cell, including its share of the scales.
template <int N>
inline constexpr int kGroupLines = (quant_cell(kQuantShapes[N]).bytes / quant_cell(kQuantShapes[N]).groups + 63) / 64;

// kLines cache lines to prefetch while other levels are loaded.
template <int kLines>
struct Ahead {
  const uint8_t* lines = nullptr;

  // Prefetches all lines in ascending order. The compiler spreads the prefetches among the loads of the current group.
  // In another order, or in a block before or after the loads, Q6_K was up to a fifth slower.
  [[gnu::always_inline]] void ask() const {
    repeat<kLines>([&](int line) __attribute__((always_inline)) { prefetch_line(lines + line * 64); });
  }

  // Prefetches part i of n exactly here; compilers would move the built-in function. Each instruction is aligned to 16
  // bytes. On Zen 5, in the loop of one token of Q8_0 with AVX-512, pairs of a load and a prefetch of 15 or 17 bytes
  // reached 0.76 to 0.90 of the rate of plain reads; pairs of 16 bytes reached 0.94 to 0.99. The reason is probably
  // that the hardware prefetcher identifies loads by their address. Other loops show no difference.
  template <int i, int n>
  [[gnu::always_inline]] void ask_part() const {
    constexpr int kFirst = i * kLines / n;
    unroll<(i + 1) * kLines / n - kFirst>([&](auto line) __attribute__((always_inline)) {
#if defined(__x86_64__)
      const uint8_t* near = lines + (kFirst + line) * 64;
      asm volatile(".p2align 4\n\tprefetcht1 %0" : : "m"(near[kPrefetchBeyond]));
      asm volatile(".p2align 4\n\tprefetcht0 %0" : : "m"(*near));
#else
      asm volatile("prfm pldl2keep, %a0" : : "p"(lines + (kFirst + line) * 64 + kPrefetchBeyond));
      asm volatile("prfm pldl1keep, %a0" : : "p"(lines + (kFirst + line) * 64));
#endif
    });
  }
};

// Prefetches the start of a thread's work, which no previous group has prefetched.
[[gnu::always_inline]] inline void prefetch_start(const uint8_t* cell, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(cell + at);
}

// Number of tokens that a group is multiplied by.
enum class Meets { one, few, many };

// One group of R parts (vectors of rows) of a panel, ready to multiply. kDirect: 8-bit levels need no unpacking, and
// are read from memory when they are multiplied. One token does so always. Few tokens do so if the levels are signed,
// because their two operands would not fit into registers, or if V has registers for the sums of kFewTokens tokens.
// kSpreads: prefetches are spread among the products. kMagnitudes: for many tokens, the magnitudes of signed levels are
// computed once and stored.
template <typename V, int N, int R, Meets kMeets, int kLines>
struct Group {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr bool kSigned = Levels<V, N>::kSigned;
  static constexpr bool kFew = V::kFewInPlace && (kSigned || V::kFewTokens > 0);
  static constexpr bool kDirect = S.whole_bytes() && kMeets <= (kFew ? Meets::few : Meets::one);
  static constexpr bool kSpreads = kDirect || (kMeets == Meets::few && V::template kSpreads<N>);
  static constexpr bool kMagnitudes = V::kByMagnitudes && kSigned && kMeets == Meets::many;
  static constexpr bool kPaired = V::kPairsColumns && kMeets != Meets::one;  // w has the form of V::pair_columns()
  using I = typename V::I;
  struct Part {
    I w[8];
    I magnitudes[kMagnitudes ? 8 : 1];
    typename V::F scale[2];  // dw; per16: for columns 0..15 and 16..31
    typename V::F minimum;   // mw
    I minimums;              // per16: int16 pairs
  };
  Part part[R];
  const uint8_t* planes = nullptr;  // kDirect
  Ahead<kLines> ahead;              // kSpreads

  // Returns W[kFirst + j] of part r. With kSpreads, it also prefetches a share of the lines, if there are any; j and r
  // must then be constants (steps()).
  template <int kFirst, typename J, typename P>
  [[gnu::always_inline]] I level(J j, P r) const {
    if constexpr (kSpreads && !kDirect) ahead.template ask_part<(kFirst + J::value) * R + P::value, 8 * R>();
    if constexpr (kDirect) {
      I bytes = V::load(planes + (kFirst + j) * quant_cell(S).plane_bytes + r * V::kLanes * 4);
      // Otherwise the compiler delays the load, and all prefetches of the group are issued in one burst.
      V::keep_here(bytes);
      ahead.template ask_part<(kFirst + J::value) * R + P::value, 8 * R>();
      return kSigned ? V::bit_xor(bytes, V::set1_8(-128)) : bytes;
    } else {
      return part[r].w[kFirst + j];
    }
  }

  // Returns the group without lines to prefetch. With kDirect, its levels are still read from memory.
  [[gnu::always_inline]] Group<V, N, R, kMeets, 0> prefetched() const {
    Group<V, N, R, kMeets, 0> same;
    repeat<R>([&](int r) __attribute__((always_inline)) {
      same.part[r].scale[0] = part[r].scale[0];
      same.part[r].scale[1] = part[r].scale[1];
      same.part[r].minimum = part[r].minimum;
      if constexpr (!kDirect) {
        same.part[r].minimums = part[r].minimums;
        repeat<8>([&](int j) __attribute__((always_inline)) { same.part[r].w[j] = part[r].w[j]; });
      }
    });
    same.planes = planes;
    return same;
  }

  // Returns |W[j]| of part r. `level`: W[j].
  [[gnu::always_inline]] I magnitude(int j, int r, I level) const {
    if constexpr (kMagnitudes) return part[r].magnitudes[j];
    return V::abs8(level);
  }
};

// Loads the bits that eight columns of group g share, for the rows from `lane` on. In each byte of a row's lane, bit 4
// + i is the bit of columns 8i .. 8i + 7.
template <typename V, int N>
[[gnu::always_inline]] inline typename V::I load_shared_bits(const uint8_t* cell, int64_t g, int64_t lane) {
  if constexpr (kQuantShapes[N].shared_bit) {
    const typename V::I words = V::load(cell + quant_cell(kQuantShapes[N]).shared_at + lane * 4);
    const typename V::I top = V::shift_left_by(words, V::set1_32(static_cast<int>(28 - 4 * g)));
    return V::look_up(top, V::broadcast16(kTopBytes.at));
  }
  return V::zero();
}

// Shuffle that copies byte kByte of each 32-bit lane to all four bytes of the lane.
template <int kByte>
constexpr TableBytes kMaskByte = {{kByte, kByte, kByte, kByte, 4 + kByte, 4 + kByte, 4 + kByte, 4 + kByte,  //
                                   8 + kByte, 8 + kByte, 8 + kByte, 8 + kByte, 12 + kByte, 12 + kByte, 12 + kByte,
                                   12 + kByte}};
constexpr TableBytes kColumnBit = {{1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8}};
constexpr TableBytes kBitsBelow = {{0, 1, 3, 7, 0, 1, 3, 7, 0, 1, 3, 7, 0, 1, 3, 7}};
constexpr TableBytes kBitsAbove = {{14, 12, 8, 0, 14, 12, 8, 0, 14, 12, 8, 0, 14, 12, 8, 0}};
constexpr TableBytes kLaneFirst = {{0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12}};
// By the mask of four columns: the number of set bits, and 3 minus that number.
constexpr TableBytes kBitsSet = {{0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4}};
constexpr TableBytes kBitsSetBack = {{3, 2, 2, 1, 2, 1, 1, 0, 2, 1, 1, 0, 1, 0, 0, 0}};

// Computes W[0..7] of one group of a shape with four_of_eight. Stored values are spread to their columns within each
// row's lane, by indices that follow from the mask of kept columns.
template <typename V, int N>
[[gnu::always_inline]] inline void spread_four_of_eight(const uint8_t* planes, typename V::I (&w)[8]) {
  static constexpr QuantShape S = kQuantShapes[N];
  using I = typename V::I;
  constexpr int64_t kPlane = kPanelRows * 4;
  constexpr int kOffset = Levels<V, N>::kOffset;
  const auto table = [](const TableBytes& bytes) __attribute__((always_inline)) { return V::broadcast16(bytes.at); };
  const I kept = V::load(planes), own = table(kColumnBit), first = table(kLaneFirst), zero = V::set1_8(kOffset);
  unroll<4>([&](auto i) __attribute__((always_inline)) {
    I values;
    if constexpr (S.low_bits == 8) {
      values = V::load(planes + (1 + i) * kPlane);
    } else {
      values = V::bit_and(V::template shift_right<i / 2 * 4>(V::load(planes + (1 + i % 2) * kPlane)), V::set1_8(15));
    }
    if constexpr (kOffset != 0) values = V::bit_xor(values, zero);  // for two's complement: adds it
    const I both = V::look_up(kept, table(kMaskByte<i>));
    unroll<2>([&](auto half) __attribute__((always_inline)) {
      const I bits = V::template shift_right<half * 4>(both);
      const I before = V::look_up(table(half == 0 ? kBitsSet : kBitsSetBack),
                                  V::bit_and(bits, table(half == 0 ? kBitsBelow : kBitsAbove)));
      w[2 * i + half] = V::look_up_where(bits, own, values, V::or_and(before, first, first), zero);
    });
  });
}

// Unpacks W[0..7] of one group from its planes, without a look-up in a table. Calls next(p) after the load of plane p
// of the low bits. `shared`: from load_shared_bits().
template <typename V, int N, typename Next>
[[gnu::always_inline]] inline void unpack_codes(const uint8_t* planes, typename V::I shared, const Next& next,
                                                typename V::I (&w)[8]) {
  static constexpr QuantShape S = kQuantShapes[N];
  if constexpr (S.four_of_eight) return spread_four_of_eight<V, N>(planes, w);
  constexpr int64_t kPlane = kPanelRows * 4;
  constexpr int L = S.low_bits;
  constexpr int H = S.high_bits;
  constexpr int kStepBits = std::countr_zero(static_cast<unsigned>(S.step));
  static_assert(S.step == 1 || H == 0);
  typename V::I low[L];
  unroll<L>([&](auto p) __attribute__((always_inline)) {
    low[p] = V::load(planes + p * kPlane);
    next(p);
  });
  unroll<8>([&](auto j) __attribute__((always_inline)) {
    constexpr int kShift = j / L * L;
    if constexpr (L == 8) {
      w[j] = Levels<V, N>::kSigned ? V::bit_xor(low[j], V::set1_8(-128)) : low[j];
    } else {
      w[j] = V::bit_and(V::template shift_right<kShift - kStepBits>(low[j % L]), V::set1_8(((1 << L) - 1) * S.step));
    }
  });
  if constexpr (H != 0) {
    typename V::I high[H];
    repeat<H>([&](int p) __attribute__((always_inline)) { high[p] = V::load(planes + (L + p) * kPlane); });
    unroll<8>([&](auto j) __attribute__((always_inline)) {
      constexpr int kBit = j / H * H;  // position of the field; it belongs at bit L
      w[j] = V::or_and(w[j], V::template shift_right<kBit - L>(high[j % H]), V::set1_8(((1 << H) - 1) << L));
    });
  }
  if constexpr (S.shared_bit) {
    unroll<8>([&](auto j) __attribute__((always_inline)) {
      w[j] = V::or_and(w[j], V::template shift_right<4 + j / 2 - (L + H)>(shared), V::set1_8(1 << (L + H)));
    });
  }
}

// Unpacks codes and looks up their levels, if the format has a table. `head`: head of the panel.
template <typename V, int N, typename Next>
[[gnu::always_inline]] inline void unpack_levels(const uint8_t* planes, const uint8_t* head, typename V::I shared,
                                                 const Next& next, typename V::I (&w)[8]) {
  static constexpr LevelTable kTable = kQuantShapes[N].table;
  unpack_codes<V, N>(planes, shared, next, w);
  if constexpr (kTable != LevelTable::none) {
    const typename V::I table = V::broadcast16(kTable == LevelTable::fp4 ? kFp4Raised.at
                                               : Levels<V, N>::kSigned   ? head
                                                                         : head + kRaisedCodesAt);
    repeat<8>([&](int j) __attribute__((always_inline)) { w[j] = V::look_up(table, w[j]); });
  }
}

// The sub-scale fields of a cell, one byte each: [field][row]. They are unpacked for all 32 rows and eight groups at
// once. Unpacking them lane by lane took a third of the instructions for one token with Q4_K on AVX2.
template <typename V, int N>
struct CellFields {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  static constexpr bool kPacked = S.sub_bits == 4 || S.sub_bits == 6;
  alignas(64) uint8_t bytes[kPacked ? S.sub_fields() * kPanelRows : 1];

  // Does nothing for fields of 8 bits, which are read in place.
  [[gnu::always_inline]] const uint8_t* read(const uint8_t* cell) {
    using B = typename V::Fields;
    unroll<kPacked ? S.sub_fields() / 2 : 0>([&](auto pair) __attribute__((always_inline)) {
      const B nibbles = B::set(15), top = B::set(48);
      B low = B::load(cell + kCell.field_at + pair * kPanelRows);
      B even = low & nibbles, odd = low.template right<4>() & nibbles;
      if constexpr (S.sub_bits == 6) {
        B high = B::load(cell + kCell.high_field_at + pair / 2 * kPanelRows);
        constexpr bool kUpper = pair % 2 != 0;  // bits 4..7 of the byte, else 0..3
        B high_even = kUpper ? high : high.template left<4>();
        B high_odd = kUpper ? high.template right<2>() : high.template left<2>();
        even = even | (high_even & top);
        odd = odd | (high_odd & top);
      }
      even.store(bytes + pair * 2 * kPanelRows);
      odd.store(bytes + (pair * 2 + 1) * kPanelRows);
    });
    return bytes;
  }
};

// Loads the scales and minimums of group g for one part, rows from `lane` on. `fields`: from CellFields.
template <typename V, int N, typename Part>
[[gnu::always_inline]] inline void load_scales(const uint8_t* cell, const uint8_t* fields, int64_t g, int64_t lane,
                                               Part& out) {
  static constexpr QuantShape S = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(S);
  int64_t scale = (S.per_group_scale() ? g : 0) * kPanelRows + lane;
  if constexpr (S.e8m0) {
    out.scale[0] = V::load_e8m0(cell + scale);
  } else if constexpr (!S.e4m3) {
    out.scale[0] = V::load_f16(cell + scale * 2);
  }
  if constexpr (S.has_min) out.minimum = V::load_f16(cell + kCell.min_at + scale * 2);
  auto field_at = [&](int i) __attribute__((always_inline)) {
    const uint8_t* first = CellFields<V, N>::kPacked ? fields : cell + kCell.field_at;
    return first + (g * S.group_fields() + i) * kPanelRows + lane;
  };
  auto field = [&](int i) __attribute__((always_inline)) {
    return S.sub_bits == 8 ? V::load_i8(field_at(i)) : V::load_u8(field_at(i));
  };
  auto sub_scale = [&](int i) __attribute__((always_inline)) {
    return V::to_float(S.sub_bias == 0 ? field(i) : V::add32(field(i), V::set1_32(-S.sub_bias)));
  };
  if constexpr (S.sub == SubScales::per32) {
    out.scale[0] = V::mul(out.scale[0], sub_scale(0));
    if constexpr (S.has_min) out.minimum = V::mul(out.minimum, sub_scale(1));
  }
  if constexpr (S.e4m3) {
    out.scale[0] = V::load_e4m3(field_at(0));
    out.scale[1] = V::load_e4m3(field_at(1));
  } else if constexpr (S.sub == SubScales::per16) {
    out.scale[1] = V::mul(out.scale[0], sub_scale(1));
    out.scale[0] = V::mul(out.scale[0], sub_scale(0));
    if constexpr (S.has_min) out.minimums = V::pairs(field(2), field(3));
  }
}

// Computes the data that products need in addition to the levels.
template <typename V, typename G>
[[gnu::always_inline]] inline void finish_levels(typename G::Part& part) {
  if constexpr (G::kMagnitudes)
    repeat<8>([&](int j) __attribute__((always_inline)) { part.magnitudes[j] = V::abs8(part.w[j]); });
  if constexpr (G::kPaired) V::pair_columns(part.w);
}

// Loads R parts of group g, rows from `lane` on, one part after the other. Between the loads, prefetches kLines lines
// of group g of the cell at `next_cell`, starting at line `first`. 8-bit levels have 17 lines; prefetching them one by
// one between the loads is 2 to 5 % faster.
template <typename V, int N, int R, Meets kMeets, int kLines>
[[gnu::always_inline]] inline void load_group(const uint8_t* head, const uint8_t* cell, const uint8_t* fields,
                                              int64_t g, int64_t lane, const uint8_t* next_cell, int64_t first,
                                              Group<V, N, R, kMeets, kLines>& out) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  constexpr int L = kQuantShapes[N].low_bits;
  constexpr bool kWhole = kQuantShapes[N].whole_bytes();
  using G = Group<V, N, R, kMeets, kLines>;
  const Ahead<kLines> ahead = {next_cell + g * (kCell.bytes / kCell.groups) + first * 64};
  const uint8_t* planes = cell + kCell.planes_at + g * kCell.group_bytes + lane * 4;
  if constexpr (G::kDirect) {
    out.planes = planes;
    out.ahead = ahead;
  } else {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      auto next = [&](auto p) __attribute__((always_inline)) {
        if constexpr (kWhole) ahead.template ask_part<r * L + p, R * L>();
      };
      const typename V::I shared = load_shared_bits<V, N>(cell, g, lane + r * V::kLanes);
      unpack_levels<V, N>(planes + r * V::kLanes * 4, head, shared, next, out.part[r].w);
      finish_levels<V, G>(out.part[r]);
    });
    if constexpr (G::kSpreads) {
      out.ahead = ahead;
    } else if constexpr (!kWhole) {
      ahead.ask();
    }
  }
  repeat<R>([&](int r) __attribute__((always_inline)) {
    load_scales<V, N>(cell, fields, g, lane + r * V::kLanes, out.part[r]);
  });
}

}  // namespace
}  // namespace millrace
