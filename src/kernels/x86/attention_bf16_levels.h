// Attention over tiles of levels (LevelTiles) with bf16 products: levels are at most 4 bits, so bf16 holds them
// exactly, and they are multiplied as they are; their scales and zeros join queries, scores and weights instead.
// Include after attention_bf16.h and attention_bf16_level_units.h, _keys.h and _values.h.
//
// With s and z the scale and zero of a group, c the codes that levels stand for, and ~ rounding to bf16 (levels that
// stand for themselves are centred about zero, and z moves by as much, so that sums are small):
//
//   keys by columns    score = sum over d of ~(q s) c   + sum over d of q z         s, z of 32 tokens or more
//   keys by tokens     score = s (sum over d of ~q c)   + z (sum over d of ~q)      s, z of a token, by groups of dims
//   values             acc   = sum over t of ~(p s) c   + sum over t of p z         p: bf16 weights, as of other keys
//
// A level becomes a bf16 by a look-up (vpermw): shifted so that it is the lowest bits of a word. Higher bits are those
// of other levels, and the table repeats so that they do not matter. A unit (AffineRows) is two dwords of each token,
// and a dword two words; the levels at the same place of both words make a pair:
//
//   keys     [16 tokens][unit][dword][shift]    16 lanes of two dims: a lane per token
//   values   [8 tokens][unit][shift]            lane l: dims of words 0 to 3, each of tokens l and 4 + l
//
// The order of every sum depends on the row and its own keys alone, as in attention_bf16.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// The arithmetic below, for levels of kBits.
template <int kBits>
struct Bf16Levels {
  using Unit = LevelUnit<kBits>;
  LevelScratch& l;

  static int64_t units(int64_t dims) { return (dims + Unit::kDims - 1) / Unit::kDims; }

  // Levels of the keys and values [begin, end) of the partition, which many rows use.
  void decode(const AttentionArgs& a, int64_t begin, int64_t end) const {
    decode_key_range<kBits>(a, begin, end, units(a.head_dim), l.keys, l);
    decode_value_range<kBits>(a, begin, end, units(value_dim_of(a)), l.values);
  }

  // Scores of the keys [begin, end), whole chunks. from: decode() was called from this key on; negative: it was not.
  void score(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
             Bf16Scratch& s) const {
    score_levels<kBits>(a, row, rows, begin, end, from, s, l);
  }

  // Adds the values [begin, end) to the rows' acc.
  void add(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
           const Bf16Scratch& s) const {
    const int64_t dims = value_dim_of(a), groups = groups_of(*a.tiles, dims);
    for (int64_t key = begin; key < end; key += kSharedTokens) {
      const TilePlace at = place_of(a, a.v_blocks, key);
      load_token_scales(*a.tiles, at.tile, at.first, groups, key, middle_of(*a.tiles), l.value_scale, l.value_zero);
    }
    const int64_t step_bytes = units(dims) * Unit::kShifts * 64;
    add_levels<kBits>(a, row, rows, begin, end,
                      from < 0 ? nullptr : l.values + (begin - from) / kStepTokens * step_bytes, s, l);
  }
};

// Rows [row, row + rows) of a partition with encoded keys [.., encoded) and raw ones behind them. from: levels are
// decoded from this key on; negative: they are not. `Levels` is Bf16Levels, or has other arithmetic.
template <typename Levels>
void attend_level_block(const AttentionArgs& a, int64_t row, int64_t rows, int64_t padded, int64_t encoded,
                        int64_t from, Bf16Scratch& s, const Levels& levels) {
  const int64_t dims = value_dim_of(a);
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  const int64_t level_end = chunks.end < encoded ? chunks.end : encoded;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (chunks.begin < level_end) levels.score(a, row, rows, chunks.begin, level_end, from, s);
  if (!raw.empty()) {
    round_queries(a, row, rows, padded, s.query);
    const KeyRange raw_chunks = whole_chunks(raw);
    in_twelves(rows, [&]<int n>(int64_t r) {
      for (int64_t j = raw_chunks.begin; j < raw_chunks.end; j += kKeyChunk)
        score_block<n, 2>(s.query + r * kQueryStride, s.keys + j * padded * 2, padded, s.score + r * kScoreStride + j);
    });
  }
  weigh_rows(a, row, rows, chunks, s);
  float* acc = a.acc + row * dims;
  if (raw.empty()) {
    std::memset(acc, 0, static_cast<size_t>(rows * dims) * sizeof(float));
  } else {
    in_twelves(rows, [&]<int n>(int64_t r) {
      for (int64_t d = 0; d < dims; d += kDimGroup)
        value_block<n, 1>(TileValues{s.values + d / kDimGroup * kGroupBytes}, s.weight + r * kWeightStride,
                          raw.begin / 2, (raw.end + 1) / 2, true, s.sum + r * kSumStride + d, nullptr);
    });
    store_sums(s.sum, rows, dims, acc);
  }
  if (chunks.begin < level_end) levels.add(a, row, rows, chunks.begin, level_end, from, s);
}

template <typename Levels>
void attend_level_partition(const AttentionArgs& a, Bf16Scratch& s, const Levels& levels) {
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0), chunks = whole_chunks(keys);
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  const int64_t padded = (a.head_dim + kDimGroup - 1) / kDimGroup * kDimGroup;
  const int64_t ahead = a.encoded_end - a.key_begin;
  const int64_t encoded = ahead < chunks.begin ? chunks.begin : ahead < chunks.end ? ahead : chunks.end;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (!raw.empty() && !load_tiles<ReadF16, ReadF16>(a, raw, padded, s) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_level_partition(one, s, levels); });
  const bool decoded = rows > kBlockRows;
  if (decoded && chunks.begin < encoded) levels.decode(a, chunks.begin, encoded);
  for (int64_t row = 0; row < rows; row += kBlockRows)
    attend_level_block(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, padded, encoded,
                       decoded ? chunks.begin : -1, s, levels);
}

inline void attend_levels_bf16(const AttentionArgs& a) noexcept {
  Bf16Scratch s;
  LevelScratch l;
  if (a.tiles->bits == 2) return attend_level_partition(a, s, Bf16Levels<2>{l});
  if (a.tiles->bits == 3) return attend_level_partition(a, s, Bf16Levels<3>{l});
  attend_level_partition(a, s, Bf16Levels<4>{l});
}

}  // namespace
}  // namespace millrace
