// Attention over one partition of rows of levels (q4_0, q4_1, q5_0, q8_0) with 8-bit products (vpdpbusd). Include after
// attention_bf16.h and attention_byte_row_formats.h, _planes.h, _keys.h and _values.h.
//
// A level is an unsigned byte. Its factor is a query, or a weight times the scale of a token's block. The factor is
// rounded to a 16-bit integer, relative to the largest factor, and split into two signed bytes: 256 high + low. Sums
// are exact integers. s: scale of a block of 32 values. c: its centre. z: its minimum (0 in formats without one). S:
// value of the integer 1. [ ]: rounding to an integer.
//
//   score   S (sum over blocks of s (sum over d of [q / S] level) + (z - s c) (sum over d of [q / S]))
//   acc     over strips of 64 tokens: S (sum over t of [p s / S] (level - c)) + sum over t of p z      p: bf16 weights
//
// For scores, each query has its own S. For values, S depends on the row's weights in the strip, where unseen keys have
// weight 0. So other rows have no effect on a row's result. The error of a product is that of its factor: half of S,
// about 2^-16 of the largest factor. A bf16 factor has a relative error of 2^-9.
//
// Few rows read levels in their stored form, in memory order. Stateless; scratch is on the stack.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

// Load the levels and scales of a partition's keys or values for many rows.
template <typename Row>
[[gnu::noinline]] void load_byte_keys(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch& b) {
  const KeyRange chunks = whole_chunks(keys);
  constexpr int64_t kLines = (kRowKeys * Row::kBytes + 63) / 64;
  const int64_t blocks = row_blocks(a.head_dim);
  find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  for (int64_t key = chunks.begin; key < chunks.end; key += kRowKeys) {
    s.ahead.ask_lines(kLines * blocks);
    load_key_scales<Row>(s.row, blocks, key, b);
    decode_row_keys<Row>(s.row + key, blocks, s.keys + key * blocks * kRowBlock);
  }
}

template <typename Row>
[[gnu::noinline]] void load_byte_values(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch& b) {
  const KeyRange chunks = whole_chunks(keys);
  constexpr int64_t kLines = (kRowKeys * Row::kBytes + 63) / 64;
  const int64_t blocks = row_blocks(value_dim_of(a));
  find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  load_value_scales<Row>(s.row, blocks, chunks.begin, chunks.end, b);
  for (int64_t strip = chunks.begin / kRowStrip * kRowStrip; strip < chunks.end; strip += kRowStrip) {
    for (int64_t block = 0; block < blocks; ++block) {
      s.ahead.ask_lines(kLines * kPartsOfStrip);
      decode_row_values<Row>(s.row, keys_of_strip(strip, chunks), block,
                             s.values + (strip / kRowStrip * blocks + block) * kStripBytes);
    }
  }
}

// Read and multiply the keys or values of a format: in their stored form for one block of rows, or as loaded once for
// all rows.
template <typename Row>
struct ByteKeys {
  static bool reads_stored(const AttentionArgs&) { return true; }
  static void load(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch& b) {
    load_byte_keys<Row>(a, keys, s, b);
  }
  static void score(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange keys, bool loaded, Bf16Scratch& s,
                    ByteRowScratch& b) {
    if (!loaded) find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
    score_byte_rows<Row>(a, row, rows, whole_chunks(keys), loaded ? s.keys : nullptr, s, b);
  }
};

template <typename Row>
struct ByteValues {
  static bool reads_stored(const AttentionArgs&, bool) { return true; }
  static bool load(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch& b) {
    load_byte_values<Row>(a, keys, s, b);
    return true;
  }
  static void add(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange keys, bool loaded, Bf16Scratch& s,
                  ByteRowScratch& b) {
    if (!loaded) find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
    add_byte_rows<Row>(a, row, rows, whole_chunks(keys), loaded ? s.values : nullptr, s, b);
  }
};

// Variants in bf16.
template <typename Read>
struct Bf16Keys {
  static bool reads_stored(const AttentionArgs& a) { return a.head_dim % kDimGroup == 0; }
  [[gnu::noinline]] static void load(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch&) {
    load_key_tiles<Read>(a, keys, padded_head(a), s);
  }
  [[gnu::noinline]] static void score(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange keys, bool loaded,
                                      Bf16Scratch& s, ByteRowScratch&) {
    if (loaded) return score_tiles(a, row, rows, whole_chunks(keys), s);
    round_queries(a, 0, rows, a.head_dim, s.query);
    find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
    score_few<Read>(a, whole_chunks(keys), a.head_dim, s);
  }
};

template <typename Read>
struct Bf16Values {
  static bool reads_stored(const AttentionArgs& a, bool alike) { return alike && value_dim_of(a) % kDimGroup == 0; }
  [[gnu::noinline]] static bool load(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch&) {
    return load_value_tiles<Read>(a, keys, s);
  }
  [[gnu::noinline]] static void add(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange keys, bool loaded,
                                    Bf16Scratch& s, ByteRowScratch&) {
    if (loaded) return add_tiles(a, row, rows, keys, s);
    find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
    value_few<Read>(a, keys, s);
  }
};

template <typename Keys, typename Values>
void attend_pair_block(const AttentionArgs& a, int64_t row, int64_t rows, bool loaded, Bf16Scratch& s,
                       ByteRowScratch& b) {
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  Keys::score(a, row, rows, keys, loaded, s, b);
  if (a.scores) return keep_scores(a, row, rows, chunks, s);
  weigh_rows(a, row, rows, chunks, s);
  Values::add(a, row, rows, keys, loaded, s, b);
}

template <typename Keys, typename Values>
void attend_pair_partition(const AttentionArgs& a, Bf16Scratch& s, ByteRowScratch& b) {
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0);  // keys that every query sees
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  s.ahead.start(a, keys.begin, keys.end);
  const bool loaded = rows > kBlockRows || !Keys::reads_stored(a) || !Values::reads_stored(a, alike);
  if (loaded) Keys::load(a, keys, s, b);
  if (loaded && !a.scores && !Values::load(a, keys, s, b) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_pair_partition<Keys, Values>(one, s, b); });
  for (int64_t row = 0; row < rows; row += kBlockRows)
    attend_pair_block<Keys, Values>(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, loaded, s, b);
}

// Wide: reads the same formats with f32 arithmetic, for heads that are too large and for rows with residuals.
template <typename Keys, typename Values, typename Wide>
void attend_pair(const AttentionArgs& a) noexcept {
  if (a.head_dim > kBf16MaxHeadDim || a.residual_offset != 0) return attend<Wide>(a);
  Bf16Scratch s;
  ByteRowScratch b;
  attend_pair_partition<Keys, Values>(a, s, b);
}

}  // namespace
}  // namespace millrace
