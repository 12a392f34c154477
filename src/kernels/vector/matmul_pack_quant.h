// Packs stored blocks to the planes described in matmul_pack.h. Written for a vector type V that holds 16 bytes of each
// of V::kRows rows (Bytes16, Bytes64). It packs a cell of 32 rows at a time, 4 V::kRows rows together. Vector i of four
// has rows i, i + 4 and so on, so that a transposition within each 16 bytes leaves a plane's words in the order of
// rows:
//
//   stored blocks                            words: each row's share of the planes       planes
//   row 0  | scale | levels ... |  levels()  vector 0  | row 0: p0 p1 .. | row 4 ..      p0  | r0 | r1 | ... | r31 |
//   row 1  | scale | levels ... |  ------->  vector 1  | row 1: p0 p1 .. | row 5 ..  ->  p1  | r0 | r1 | ... | r31 |
//
// Meanwhile the stored rows of the next panel are prefetched, because 32 rows are too many streams for the hardware's
// prefetcher.
//
// Blocks without bit fields (codebooks of vectors, ternary digits) are first split into one byte for each level, one
// block of every row at a time. Everything is in an unnamed namespace and calls no inline functions from other headers,
// because each file that includes this one is compiled for another instruction set.
#pragma once

#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/vector/matmul_pack.h"
#include "kernels/vector/transpose.h"
#include "kernels/vector/unroll.h"

namespace millrace {
namespace {

constexpr int kRows = static_cast<int>(kPanelRows);

// Names of the formats of kQuantShapes.
constexpr std::string_view kQuantFormatNames[] = {
    "q8_0",  "q4_0",  "q4_1",  "q5_0", "q5_1", "q2_k", "q3_k",   "q4_k",    "q5_k",   "q6_k",    "iq4_nl",  "iq4_xs",
    "mxfp4", "iq2_s", "nvfp4", "q1_0", "q2_0", "e8p",  "q2_g64", "q2_g128", "q3_g64", "q3_g128", "q8_4of8", "q4_4of8"};
static_assert(std::size(kQuantFormatNames) == kQuantSourceCount);

// true: blocks of this shape are split first; see quant_shape.cc
template <int N>
constexpr bool kCarries =
    kQuantShapes[N].table == LevelTable::codes ||
    kQuantFormatNames[N] == std::string_view("q2_k") || kQuantFormatNames[N] == std::string_view("q6_k");

template <int N>
constexpr int kPlanes = static_cast<int>(quant_cell(kQuantShapes[N]).planes);
// Number of vectors that hold four words of each row; each plane has one word.
template <int N>
constexpr int kWordVectors = (kPlanes<N> + 3) / 4;

using Split = void (*)(const uint8_t* block, QuantBlock& out);

// Writes the scales of one row's split block to lane `row` of the cell; `group` is the block's first group in the cell.
template <int N>
inline void place_split_scales(const QuantBlock& raw, int64_t group, int row, uint8_t* out) {
  static constexpr QuantShape kShape = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(kShape);
  const int64_t at = (kShape.per_group_scale() ? group : 0) * kRows + row;
  if constexpr (!kShape.e4m3) std::memcpy(out + at * 2, &raw.d, 2);
  if constexpr (kShape.has_min) std::memcpy(out + kCell.min_at + at * 2, &raw.min, 2);
  if constexpr (kShape.sub == SubScales::none) return;
  uint8_t fields[kShape.sub_fields() + 1];
  for (int i = 0; i < kShape.sub_count(); ++i) {
    fields[sub_field(kShape, i, false)] = static_cast<uint8_t>(raw.scale[i] + kShape.sub_bias);
    if constexpr (kShape.has_min) fields[sub_field(kShape, i, true)] = raw.minimum[i];
  }
  uint8_t* to = out + kCell.field_at + row;
  if constexpr (kShape.sub_bits == 8) {
    for (int f = 0; f < kShape.sub_fields(); ++f) to[f * kRows] = fields[f];
    return;
  }
  for (int f = 0; f < kShape.sub_fields(); f += 2) {
    to[f / 2 * kRows] = static_cast<uint8_t>((fields[f] & 15) | fields[f + 1] << 4);
  }
  if constexpr (kShape.sub_bits == 6) {
    to = out + kCell.high_field_at + row;
    for (int f = 0; f < kShape.sub_fields(); f += 4) {
      to[f / 4 * kRows] = static_cast<uint8_t>(fields[f] >> 4 | fields[f + 1] >> 4 << 2 | fields[f + 2] >> 4 << 4 |
                                               fields[f + 3] >> 4 << 6);
    }
  }
}

// Writes the scales of one row's stored block to lane `row` of the cell.
template <int N>
inline void place_scales(const uint8_t* block, int64_t group, int row, uint8_t* out) {
  static constexpr QuantShape kShape = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(kShape);
  const int64_t at = (kShape.per_group_scale() ? group : 0) * kRows + row;
  if constexpr (kShape.e8m0) {
    out[at] = block[0];
  } else if constexpr (kShape.sub == SubScales::none) {
    std::memcpy(out + at * 2, block, 2);
    if constexpr (kShape.has_min) {
      out[kCell.min_at + at * 2] = block[2];
      out[kCell.min_at + at * 2 + 1] = block[3] ^ 0x80;  // the value to subtract
    }
  } else {
    QuantBlock raw;
    quant_source_at(N)->split_scales(block, raw);
    place_split_scales<N>(raw, group, row, out);
  }
}

// Writes the bits that eight columns share, from one row's split block.
template <int N>
inline void place_shared_bits(const QuantBlock& raw, int row, uint8_t* out) {
  static constexpr QuantShape kShape = kQuantShapes[N];
  if constexpr (kShape.shared_bit) {
    uint32_t word = 0;
    for (int i = 0; i < kShape.groups * 4; ++i)
      word |= (uint32_t{raw.level[8 * i]} >> (kShape.low_bits + kShape.high_bits) & 1) << i;
    std::memcpy(out + quant_cell(kShape).shared_at + row * 4, &word, sizeof word);
  }
}

// Lines to prefetch while a cell is packed, a share after every few rows. If all were prefetched at once, packing would
// have to wait for memory.
struct CellAhead {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;  // end of the shares so far
  int64_t share = 0;             // bytes

  void next() {
    for (end += share; at < end; at += 64) __builtin_prefetch(at, 0, 2);
  }
};

void write_head(const QuantSource& source, float scale, uint8_t* head) {
  std::memset(head, 0, 64);
  for (int i = 0; source.codes && i < 16; ++i) {
    head[i] = static_cast<uint8_t>(source.codes[i]);
    head[kRaisedCodesAt + i] = static_cast<uint8_t>(source.codes[i] + 128);
  }
  const float unit = source.unit * scale;
  std::memcpy(head + kFormatUnitAt, &unit, sizeof unit);
}

template <typename V>
struct QuantPacker {
  using Bytes = typename V::Bytes;

  // (byte >> bits) & mask; mask must not reach bits of the neighbouring byte.
  static Bytes field(Bytes v, int bits, int mask) { return V::bits_and(V::shift_right(v, bits), V::set_bytes(mask)); }

  static Bytes or_left(Bytes low, Bytes high, int bits) { return V::bits_or(low, V::shift_left(high, bits)); }

  // Addresses of a vector's rows, in stored blocks or in the levels of split blocks.
  struct RowBytes {
    const uint8_t* first = nullptr;
    int64_t stride = 0;  // from one row of the vector to the next

    RowBytes operator+(int64_t bytes) const { return {first + bytes, stride}; }
  };
  static Bytes load(RowBytes rows) { return V::load_rows(rows.first, rows.stride); }

  // The 32 levels of a group, one byte each: values 0..15 and 16..31.
  struct GroupLevels {
    Bytes low, high;
  };

  // Returns bytes 0 .. 3 of a word, four times each.
  static Bytes four_times(RowBytes word) {
    Bytes pairs = V::load_words(word.first, word.stride);
    pairs = V::low8(pairs, pairs);
    return V::low16(pairs, pairs);
  }

  // Returns bit i of the word as bit kBit of byte i.
  template <int kBit>
  [[gnu::always_inline]] static GroupLevels bits_of(RowBytes word) {
    const Bytes select = V::set_quads(0x8040201008040201ull);
    const Bytes pairs = four_times(word);
    auto expand = [&](Bytes bytes) {
      const Bytes set = V::equal_bytes(V::bits_and(bytes, select), select);
      return V::bits_and(set, V::set_bytes(1 << kBit));
    };
    return {expand(V::low32(pairs, pairs)), expand(V::high32(pairs, pairs))};
  }

  // Unpacks fields of two bits, four from each byte.
  [[gnu::always_inline]] static Bytes sixteen_pairs(RowBytes word) {
    const Bytes bytes = four_times(word);
    Bytes out = V::bits_and(bytes, V::set_quads(0x0000000300000003ull));
    out = V::bits_or(out, V::bits_and(V::shift_right(bytes, 2), V::set_quads(0x0000030000000300ull)));
    out = V::bits_or(out, V::bits_and(V::shift_right(bytes, 4), V::set_quads(0x0003000000030000ull)));
    return V::bits_or(out, V::bits_and(V::shift_right(bytes, 6), V::set_quads(0x0300000003000000ull)));
  }

  [[gnu::always_inline]] static GroupLevels nibbles(RowBytes bytes) {
    const Bytes v = load(bytes);
    return {field(v, 0, 15), field(v, 4, 15)};
  }

  [[gnu::always_inline]] static GroupLevels fields(RowBytes bytes, int bits, int mask) {
    return {field(load(bytes), bits, mask), field(load(bytes + 16), bits, mask)};
  }

  static GroupLevels join(GroupLevels low, GroupLevels high, int bits) {
    return {or_left(low.low, high.low, bits), or_left(low.high, high.high, bits)};
  }

  // Returns the levels of group g of a stored block, in the order of the split functions of quant_shape.cc.
  template <int N>
  [[gnu::always_inline]] static GroupLevels levels(RowBytes b, int g) {
    constexpr std::string_view kFormat = kQuantFormatNames[N];
    if constexpr (kFormat == "q8_0") {
      const Bytes flip = V::set_bytes(-128);
      return {V::bits_xor(load(b + 2), flip), V::bits_xor(load(b + 18), flip)};
    } else if constexpr (kFormat == "q4_0" || kFormat == "iq4_nl") {
      return nibbles(b + 2);
    } else if constexpr (kFormat == "q4_1") {
      return nibbles(b + 4);
    } else if constexpr (kFormat == "q5_0") {
      return join(nibbles(b + 6), bits_of<4>(b + 2), 0);
    } else if constexpr (kFormat == "q5_1") {
      return join(nibbles(b + 8), bits_of<4>(b + 4), 0);
    } else if constexpr (kFormat == "mxfp4") {
      return nibbles(b + 1);
    } else if constexpr (kFormat == "iq4_xs") {
      return nibbles(b + 8 + g * 16);
    } else if constexpr (kFormat == "q2_k") {
      return fields(b + 16 + g / 4 * 32, g % 4 * 2, 3);
    } else if constexpr (kFormat == "q3_k") {
      return join(fields(b + 32 + g / 4 * 32, g % 4 * 2, 3), fields(b, g, 1), 2);
    } else if constexpr (kFormat == "q4_k") {
      return fields(b + 16 + g / 2 * 32, g % 2 * 4, 15);
    } else if constexpr (kFormat == "q5_k") {
      return join(fields(b + 48 + g / 2 * 32, g % 2 * 4, 15), fields(b + 16, g, 1), 4);
    } else if constexpr (kFormat == "nvfp4") {
      const GroupLevels both = nibbles(b + 4 + g * 16);  // two runs of 16 values in 8 bytes
      return {V::low64(both.low, both.high), V::high64(both.low, both.high)};
    } else if constexpr (kFormat == "q1_0") {
      return bits_of<0>(b + 2 + g * 4);
    } else if constexpr (kFormat == "q2_0") {
      return {sixteen_pairs(b + 2 + g * 8), sixteen_pairs(b + 6 + g * 8)};
    } else if constexpr (kFormat == "q2_g64" || kFormat == "q2_g128") {
      return {sixteen_pairs(b + 4 + g * 8), sixteen_pairs(b + 8 + g * 8)};
    } else if constexpr (kFormat == "q3_g64" || kFormat == "q3_g128") {
      constexpr int kHighAt = 4 + kQuantShapes[N].groups * 8;
      return join({sixteen_pairs(b + 4 + g * 8), sixteen_pairs(b + 8 + g * 8)}, bits_of<2>(b + kHighAt + g * 4), 0);
    } else if constexpr (kFormat == "q8_4of8") {
      return {load(b + 2), V::load_words((b + 18).first, b.stride)};
    } else if constexpr (kFormat == "q4_4of8") {
      const auto word = [&](int at) __attribute__((always_inline)) { return V::load_words((b + at).first, b.stride); };
      return {V::low64(V::low32(word(2), word(6)), word(10)), V::set_bytes(0)};
    } else if constexpr (kFormat == "iq2_s" || kFormat == "e8p") {
      return {V::set_bytes(0), V::set_bytes(0)};  // always split
    } else {
      static_assert(kFormat == "q6_k");
      return join(fields(b + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, 15), fields(b + 128 + g / 4 * 32, g % 4 * 2, 3),
                  4);
    }
  }

  // Returns the n planes of fields of n bits, n < 8. The words of v.low and v.high are W[j], j = 0..7. Word p of the
  // result, for plane p, packs W[p], W[p + n] ... side by side.
  template <int n>
  [[gnu::always_inline]] static Bytes planes_of(GroupLevels v) {
    Bytes planes = or_left(v.low, v.high, 4);  // W[j] | W[j + 4] << 4
    if constexpr (n <= 2) planes = or_left(planes, V::template without_first<8>(planes), 2);
    if constexpr (n == 1) planes = or_left(planes, V::template without_first<4>(planes), 1);
    return planes;
  }

  template <int N>
  [[gnu::always_inline]] static void row_words(GroupLevels v, Bytes (&words)[kWordVectors<N>]) {
    constexpr QuantShape kShape = kQuantShapes[N];
    if constexpr (kShape.four_of_eight) {  // words are not changed
      words[0] = v.low;
      if constexpr (kWordVectors < N >> 1) words[1] = v.high;
    } else if constexpr (kShape.low_bits == 8) {
      words[0] = v.low;
      words[1] = v.high;
    } else {
      constexpr int kMask = (1 << kShape.low_bits) - 1;
      words[0] = planes_of<kShape.low_bits>({field(v.low, 0, kMask), field(v.high, 0, kMask)});
      if constexpr (kShape.high_bits != 0) {
        constexpr int kHighMask = (1 << kShape.high_bits) - 1;
        const Bytes high = planes_of<kShape.high_bits>(
            {field(v.low, kShape.low_bits, kHighMask), field(v.high, kShape.low_bits, kHighMask)});
        if constexpr (kShape.low_bits == 4)
          words[1] = high;
        else
          words[0] = V::low64(words[0], high);
      }
    }
  }

  // Writes word p of each of 4 V::kRows rows, from `row` on, to plane p.
  template <int N>
  [[gnu::always_inline]] static void store_words(const Bytes (&words)[4][kWordVectors<N>], int row, uint8_t* planes) {
    unroll<kWordVectors<N>>([&](auto v) {
      Bytes out[4];
      transpose_words<V>({words[0][v], words[1][v], words[2][v], words[3][v]}, out);
      unroll<4>([&](auto i) {
        constexpr int kPlane = 4 * v + i;
        if constexpr (kPlane < kPlanes<N>) V::store(planes + kPlane * kRows * 4 + row * 4, out[i]);
      });
    });
  }

  // Packs one group of a cell. Rows from `rows` on are zero; vectors of several rows need a full cell.
  template <int N, typename RowLevels>
  static void pack_group(const RowLevels& row_levels, int rows, uint8_t* planes, CellAhead& ahead) {
    for (int row = 0; row < kRows; row += 4 * V::kRows) {
      ahead.next();
      Bytes words[4][kWordVectors<N>];
      const auto take = [&](int i) __attribute__((always_inline)) { row_words<N>(row_levels(row + i), words[i]); };
      if (V::kRows > 1 || row + 4 <= rows) {
        unroll<4>(take);
      } else {
        for (int i = 0; i < 4; ++i) {
          if (row + i < rows) {
            take(i);
          } else {
            for (Bytes& zeros : words[i]) zeros = V::set_bytes(0);
          }
        }
      }
      store_words<N>(words, row, planes);
    }
  }

  // Packs one cell. `rows`: its number of rows; the other rows are zero. `block`: first block of the first row in the
  // cell. `blocks`: number of blocks of a row in the cell. `split`: splits a block, if N carries the format of the
  // blocks; otherwise null.
  template <int N>
  static void pack_cell(Split split, const uint8_t* block, int64_t row_bytes, int64_t block_bytes, int64_t blocks,
                        int rows, CellAhead ahead, uint8_t* out) {
    static constexpr QuantShape kShape = kQuantShapes[N];
    static constexpr QuantCell kCell = quant_cell(kShape);
    if (rows < kRows || blocks * kShape.groups < kCell.groups) std::memset(out, 0, kCell.bytes);
    QuantBlock raw[kCarries<N> ? kRows : 1];
    for (int64_t b = 0; b < blocks; ++b) {
      const auto stored = [&](int row) { return block + row * row_bytes + b * block_bytes; };
      const bool is_split = kCarries<N> && split != nullptr;
      if (is_split)
        for (int row = 0; row < rows; ++row) split(stored(row), raw[row]);
      for (int g = 0; g < kShape.groups; ++g) {
        const auto split_levels = [&](int row) __attribute__((always_inline)) {
          const RowBytes bytes = {raw[row].level + g * 32, 4 * sizeof(QuantBlock)};
          return GroupLevels{load(bytes), load(bytes + 16)};
        };
        const auto stored_levels = [&](int row) __attribute__((always_inline)) {
          return levels<N>({stored(row), 4 * row_bytes}, g);
        };
        uint8_t* planes = out + kCell.planes_at + (b * kShape.groups + g) * kCell.group_bytes;
        if (is_split)
          pack_group<N>(split_levels, rows, planes, ahead);
        else
          pack_group<N>(stored_levels, rows, planes, ahead);
      }
      for (int row = 0; row < rows; ++row) {
        if (is_split) {
          place_split_scales<N>(raw[row], b, row, out);
          place_shared_bits<N>(raw[row], row, out);
        } else {
          place_scales<N>(stored(row), b, row, out);
        }
      }
    }
  }

  // Packs rows of a format with shape N. `index`: the format's index in quant_source_at().
  template <int N>
  static void pack_panels(int index, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin,
                          int64_t row_end, uint8_t* packed, const BlockScales* scales) {
    static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
    static constexpr int64_t kCellBlocks = kCell.groups / kQuantShapes[N].groups;
    const QuantSource& source = *quant_source_at(index);
    const Split split = source.carrier >= 0 ? source.split : nullptr;
    const Format* format = quant_format_at(index);
    const int64_t block_bytes = format->block_bytes;
    const int64_t blocks = cols / format->block_values;
    const int64_t row_bytes = blocks * block_bytes;
    constexpr int64_t kShares = kCell.groups * (kRows / (4 * V::kRows));
    const int64_t share = (kPanelRows * kCellBlocks * block_bytes + kShares - 1) / kShares;
    for (int64_t first = row_begin; first < row_end; first += kPanelRows) {
      uint8_t* out = packed + first / kPanelRows * quant_panel_bytes(kCell, cols);
      const int count = static_cast<int>(rows - first < kPanelRows ? rows - first : kPanelRows);
      const uint8_t* block = stored + first * row_bytes;
      const uint8_t* next = block + kPanelRows * row_bytes;
      if constexpr (kCell.head_bytes > 0) {
        write_head(source, matrix_scale(scales), out);
        out += kCell.head_bytes;
      }
      for (int64_t b = 0; b < blocks; b += kCellBlocks) {
        const int64_t here = blocks - b < kCellBlocks ? blocks - b : kCellBlocks;
        const uint8_t* cell_ahead = next + kPanelRows * b * block_bytes;
        const CellAhead ahead = {cell_ahead, cell_ahead, share};
        pack_cell<N>(split, block + b * block_bytes, row_bytes, block_bytes, here, count, ahead, out);
        out += kCell.bytes;
      }
    }
  }
};

using PackPanels = void (*)(int, const uint8_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*, const BlockScales*);
template <typename V, int... N>
constexpr PackPanels pack_panels_of(int index, std::integer_sequence<int, N...>) {
  constexpr PackPanels kPack[] = {QuantPacker<V>::template pack_panels<N>...};
  return kPack[index];
}

// Returns the packing function for a format's index in quant_source_at(); null if its blocks have another number of
// groups than the carrier's.
template <typename V>
PackPanels panels_packer(int source) {
  const QuantSource& from = *quant_source_at(source);
  const bool carried = from.carrier >= 0;
  if (carried && from.shape.groups != kQuantShapes[from.carrier].groups) return nullptr;
  return pack_panels_of<V>(carried ? from.carrier : source, std::make_integer_sequence<int, kQuantSourceCount>{});
}

}  // namespace
}  // namespace millrace
