// Fills the quantized panels described in matmul_pack.h. Runs once at load, on all threads (each packs its own panels),
// directly from stored blocks to planes, a cell of 32 rows at a time:
//
//   stored blocks of 32 rows                 words: each row's share of the planes        planes
//   row 0  | scale | levels ... |  levels()  row 0  | p0 | p1 | ... |  transpose of       p0  | r0 | r1 | ... | r31 |
//   row 1  | scale | levels ... |  ------->  row 1  | p0 | p1 | ... |  4-byte words --->  p1  | r0 | r1 | ... | r31 |
//
// Blocks that are no planes of bits (codebooks of vectors, ternary digits) are first split into a byte a level, a block
// of every row at a time. Written with the vectors that every processor has (SSE2, NEON): wider ones would not make
// memory faster.
#include "kernels/vector/matmul_pack.h"

#if defined(__x86_64__) || defined(__aarch64__)
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/vector/transpose.h"

namespace millrace {
namespace {

constexpr int kRows = static_cast<int>(kPanelRows);

// Of kQuantShapes.
constexpr std::string_view kQuantFormatNames[] = {"q8_0",  "q4_0",  "q4_1",  "q5_0", "q5_1",   "q2_k",
                                                  "q3_k",  "q4_k",  "q5_k",  "q6_k", "iq4_nl", "iq4_xs",
                                                  "mxfp4", "iq2_s", "nvfp4", "q1_0", "q2_0",   "e8p"};
static_assert(std::size(kQuantFormatNames) == kQuantSourceCount);

// (byte >> bits) & mask; mask must not reach bits of the neighbouring byte.
inline Bytes16 field(Bytes16 v, int bits, int mask) { return bits_and(shift_right(v, bits), set_bytes(mask)); }

inline Bytes16 or_left(Bytes16 low, Bytes16 high, int bits) { return bits_or(low, shift_left(high, bits)); }

// The 32 levels of a group: values 0..15 and 16..31, one byte each.
struct GroupLevels {
  Bytes16 low, high;
};

// Bytes 0 .. 3, four times each.
inline Bytes16 four_times(const uint8_t* word) {
  uint32_t bits;
  std::memcpy(&bits, word, 4);
  Bytes16 pairs = set_word(bits);
  pairs = low8(pairs, pairs);
  return low16(pairs, pairs);
}

// Bit i of the word as bit kBit of byte i.
template <int kBit>
inline GroupLevels bits_of(const uint8_t* word) {
  const Bytes16 select = set_quads(0x8040201008040201ull);
  const Bytes16 pairs = four_times(word);
  auto expand = [&](Bytes16 bytes) {
    const Bytes16 set = equal_bytes(bits_and(bytes, select), select);
    return bits_and(set, set_bytes(1 << kBit));
  };
  return {expand(low32(pairs, pairs)), expand(high32(pairs, pairs))};
}

// Fields of two bits, four a byte.
inline Bytes16 sixteen_pairs(const uint8_t* word) {
  const Bytes16 bytes = four_times(word);
  Bytes16 out = bits_and(bytes, set_quads(0x0000000300000003ull));
  out = bits_or(out, bits_and(shift_right(bytes, 2), set_quads(0x0000030000000300ull)));
  out = bits_or(out, bits_and(shift_right(bytes, 4), set_quads(0x0003000000030000ull)));
  return bits_or(out, bits_and(shift_right(bytes, 6), set_quads(0x0300000003000000ull)));
}

inline GroupLevels nibbles(const uint8_t* bytes) {
  const Bytes16 v = load(bytes);
  return {field(v, 0, 15), field(v, 4, 15)};
}

inline GroupLevels fields(const uint8_t* bytes, int bits, int mask) {
  return {field(load(bytes), bits, mask), field(load(bytes + 16), bits, mask)};
}

inline GroupLevels join(GroupLevels low, GroupLevels high, int bits) {
  return {or_left(low.low, high.low, bits), or_left(low.high, high.high, bits)};
}

// Group g of a stored block, in the order of the split functions of quant_shape.cc.
template <int N>
inline GroupLevels levels(const uint8_t* b, int g) {
  constexpr std::string_view kFormat = kQuantFormatNames[N];
  if constexpr (kFormat == "q8_0") {
    const Bytes16 flip = set_bytes(-128);
    return {bits_xor(load(b + 2), flip), bits_xor(load(b + 18), flip)};
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
    const GroupLevels both = nibbles(b + 4 + g * 16);  // of two runs of 16 values in 8 bytes
    return {low64(both.low, both.high), high64(both.low, both.high)};
  } else if constexpr (kFormat == "q1_0") {
    return bits_of<0>(b + 2 + g * 4);
  } else if constexpr (kFormat == "q2_0") {
    return {sixteen_pairs(b + 2 + g * 8), sixteen_pairs(b + 6 + g * 8)};
  } else if constexpr (kFormat == "iq2_s" || kFormat == "e8p") {
    return {set_bytes(0), set_bytes(0)};  // always split
  } else {
    static_assert(kFormat == "q6_k");
    return join(fields(b + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, 15), fields(b + 128 + g / 4 * 32, g % 4 * 2, 3), 4);
  }
}

// Whether formats of this shape are split first; see quant_shape.cc.
template <int N>
constexpr bool kCarries =
    kQuantShapes[N].table == LevelTable::codes ||
    kQuantFormatNames[N] == std::string_view("q2_k") || kQuantFormatNames[N] == std::string_view("q6_k");

// Words per row: one for each plane, rounded up to whole vectors of four.
template <int N>
constexpr int kPlanes = kQuantShapes[N].low_bits + kQuantShapes[N].high_bits;
template <int N>
constexpr int kWords = (kPlanes<N> + 3) / 4 * 4;

// Planes of the low (or high) bits of one row's group: W[j], j = 0..7, are the words of v.low and v.high, and plane p
// packs W[p], W[p + n] ... side by side, n planes of n bits.
template <int n>
inline void store_planes(GroupLevels v, uint32_t* words) {
  if constexpr (n == 8) {
    store(words, v.low);
    store(words + 4, v.high);
    return;
  }
  Bytes16 planes = or_left(v.low, v.high, 4);  // W[j] | W[j + 4] << 4
  if constexpr (n <= 2) planes = or_left(planes, without_first<8>(planes), 2);
  if constexpr (n == 1) planes = or_left(planes, without_first<4>(planes), 1);
  if constexpr (n == 4) store(words, planes);
  if constexpr (n == 2) store_half(words, planes);
  if constexpr (n == 1) *words = first_word(planes);
}

template <int N>
inline void row_words(GroupLevels v, uint32_t* words) {
  constexpr QuantShape kShape = kQuantShapes[N];
  if constexpr (kShape.low_bits == 8) return store_planes<8>(v, words);
  constexpr int kMask = (1 << kShape.low_bits) - 1;
  store_planes<kShape.low_bits>({field(v.low, 0, kMask), field(v.high, 0, kMask)}, words);
  if constexpr (kShape.high_bits != 0) {
    constexpr int kHighMask = (1 << kShape.high_bits) - 1;
    store_planes<kShape.high_bits>(
        {field(v.low, kShape.low_bits, kHighMask), field(v.high, kShape.low_bits, kHighMask)}, words + kShape.low_bits);
  }
}

// Writes word p of every row to plane p.
template <int N>
inline void store_group(const uint32_t (&words)[kRows][kWords<N>], uint8_t* planes) {
  for (int p = 0; p < kWords<N>; p += 4) {
    for (int row = 0; row < kRows; row += 4) {
      Bytes16 out[4];
      transpose_words(load(words[row] + p), load(words[row + 1] + p), load(words[row + 2] + p),
                      load(words[row + 3] + p), out);
      for (int i = 0; i < 4 && p + i < kPlanes<N>; ++i) store(planes + (p + i) * kRows * 4 + row * 4, out[i]);
    }
  }
}

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

// The same of a stored block.
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

// The bits that eight columns share, of one row's split block.
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

// One cell of `rows` rows, the rest zero; `block` is the first row's first block in it, `blocks` their number. `split`:
// how blocks are split where N carries their format; else null.
using Split = void (*)(const uint8_t* block, QuantBlock& out);
template <int N>
void pack_cell(Split split, const uint8_t* block, int64_t row_bytes, int64_t block_bytes, int64_t blocks, int rows,
               uint8_t* out) {
  static constexpr QuantShape kShape = kQuantShapes[N];
  static constexpr QuantCell kCell = quant_cell(kShape);
  if (rows < kRows || blocks * kShape.groups < kCell.groups) std::memset(out, 0, kCell.bytes);
  alignas(16) uint32_t words[kRows][kWords<N>];
  if (rows < kRows) std::memset(words, 0, sizeof words);
  QuantBlock raw[kCarries<N> ? kRows : 1];
  for (int64_t b = 0; b < blocks; ++b) {
    const auto stored = [&](int row) { return block + row * row_bytes + b * block_bytes; };
    const bool is_split = kCarries<N> && split != nullptr;
    if (is_split)
      for (int row = 0; row < rows; ++row) split(stored(row), raw[row]);
    for (int g = 0; g < kShape.groups; ++g) {
      for (int row = 0; row < rows; ++row) {
        const uint8_t* bytes = raw[is_split ? row : 0].level + g * 32;
        row_words<N>(is_split ? GroupLevels{load(bytes), load(bytes + 16)} : levels<N>(stored(row), g), words[row]);
      }
      store_group<N>(words, out + kCell.planes_at + (b * kShape.groups + g) * kCell.group_bytes);
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

void write_head(const QuantSource& source, float scale, uint8_t* head) {
  std::memset(head, 0, 64);
  for (int i = 0; source.codes && i < 16; ++i) {
    head[i] = static_cast<uint8_t>(source.codes[i]);
    head[kRaisedCodesAt + i] = static_cast<uint8_t>(source.codes[i] + 128);
  }
  const float unit = source.unit * scale;
  std::memcpy(head + kFormatUnitAt, &unit, sizeof unit);
}

// Of a format of shape N: `index` in quant_source_at().
template <int N>
void pack_panels(int index, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin, int64_t row_end,
                 uint8_t* packed, const BlockScales* scales) {
  static constexpr QuantCell kCell = quant_cell(kQuantShapes[N]);
  static constexpr int64_t kCellBlocks = kCell.groups / kQuantShapes[N].groups;
  const QuantSource& source = *quant_source_at(index);
  const Split split = source.carrier >= 0 ? source.split : nullptr;
  const Format* format = quant_format_at(index);
  const int64_t row_bytes = format->row_bytes(cols);
  const int64_t block_bytes = format->block_bytes;
  const int64_t blocks = cols / format->block_values;
  for (int64_t first = row_begin; first < row_end; first += kPanelRows) {
    uint8_t* out = packed + first / kPanelRows * quant_panel_bytes(kCell, cols);
    const int count = static_cast<int>(std::min(kPanelRows, rows - first));
    const uint8_t* block = stored + first * row_bytes;
    if constexpr (kCell.head_bytes > 0) {
      write_head(source, matrix_scale(scales), out);
      out += kCell.head_bytes;
    }
    for (int64_t b = 0; b < blocks; b += kCellBlocks) {
      pack_cell<N>(split, block + b * block_bytes, row_bytes, block_bytes, std::min(kCellBlocks, blocks - b), count,
                   out);
      out += kCell.bytes;
    }
  }
}

using PackPanels = void (*)(int, const uint8_t*, int64_t, int64_t, int64_t, int64_t, uint8_t*, const BlockScales*);
template <int... N>
constexpr PackPanels pack_panels_of(int index, std::integer_sequence<int, N...>) {
  constexpr PackPanels kPack[] = {pack_panels<N>...};
  return kPack[index];
}

// Stored blocks of several groups as blocks of Q8_0, a panel at a time.
void pack_as_q8_0(const QuantSource& source, const Format& format, const uint8_t* stored, int64_t rows, int64_t cols,
                  int64_t row_begin, int64_t row_end, uint8_t* packed) {
  constexpr int64_t kBytes = 2 + 32;
  const int64_t row_bytes = cols / 32 * kBytes;
  std::vector<uint8_t> panel(static_cast<size_t>(std::min(kPanelRows, row_end - row_begin) * row_bytes));
  QuantBlock raw;
  for (int64_t first = row_begin; first < row_end; first += kPanelRows) {
    const int64_t count = std::min(kPanelRows, std::min(rows, row_end) - first);
    uint8_t* to = panel.data();
    for (int64_t row = first; row < first + count; ++row) {
      const uint8_t* block = stored + row * format.row_bytes(cols);
      for (int64_t b = 0; b < cols / format.block_values; ++b, block += format.block_bytes) {
        source.split(block, raw);
        for (int g = 0; g < source.shape.groups; ++g, to += kBytes) {
          std::memcpy(to, &raw.d, 2);
          for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<uint8_t>(raw.level[g * 32 + i] - source.shape.offset);
        }
      }
    }
    const QuantCell cell = quant_cell(kQuantShapes[source.carrier]);
    pack_quant_panels(source.carrier, panel.data(), count, cols, 0, count,
                      packed + first / kPanelRows * quant_panel_bytes(cell, cols));
  }
}

}  // namespace

void pack_quant_panels(int source, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin,
                       int64_t row_end, uint8_t* packed, const BlockScales* scales) {
  const QuantSource& from = *quant_source_at(source);
  const int carrier = from.carrier;
  if (carrier >= 0 && from.shape.groups != kQuantShapes[carrier].groups)
    return pack_as_q8_0(from, *quant_format_at(source), stored, rows, cols, row_begin, row_end, packed);
  const auto pack =
      pack_panels_of(carrier >= 0 ? carrier : source, std::make_integer_sequence<int, kQuantSourceCount>{});
  pack(source, stored, rows, cols, row_begin, row_end, packed, scales);
}

namespace {

template <int kSource>
void pack_carried(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin,
                  int64_t row_end, uint8_t* packed) {
  pack_quant_panels(kSource, stored, rows, cols, row_begin, row_end, packed);
}

template <int kSource>
void add_carried_kernel(KernelTable& table) {
  const MatmulKernel* carrier = table.find_matmul(quant_format_at(quant_source_at(kSource)->carrier));
  if (carrier == nullptr || carrier->layout != std::string_view("cells32")) return;  // only the reference's
  MatmulKernel kernel = *carrier;
  kernel.format = quant_format_at(kSource);
  kernel.pack = pack_carried<kSource>;
  set_matmul(table, kernel);
}

}  // namespace

void add_carried_kernels(KernelTable& table) {
  [&table]<int... i>(std::integer_sequence<int, i...>) { (add_carried_kernel<kQuantSourceCount + i>(table), ...); }
  (std::make_integer_sequence<int, kCarriedCount>{});
}

}  // namespace millrace
#endif
