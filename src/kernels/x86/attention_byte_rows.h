// Attention over one partition of rows of levels (q4_0, q4_1, q5_0, q8_0) with 8-bit products (vpdpbusd). Include after
// attention_bf16.h and attention_byte_row_formats.h, _planes.h, _keys.h and _values.h.
//
// A level is an unsigned byte. What multiplies it, a query, or a weight times the scale of a block of a token, is
// rounded to a whole number of 16 bits under the largest of its kind: 256 high + low, two signed bytes. Sums are whole
// numbers, and exact. With s the scale of a block of 32 values, c its centre and z its minimum (0 in formats without
// one), S what 1 stands for, and [] rounding to whole numbers:
//
//   score   S (sum over blocks of s (sum over d of [q / S] level) + (z - s c) (sum over d of [q / S]))
//   acc     over strips of 64 tokens: S (sum over t of [p s / S] (level - c)) + sum over t of p z      p: bf16 weights
//
// S of scores is a query's own; that of values is of the row's weights in the strip, among which unseen ones are 0. So
// companions change nothing, whatever the order of the sums of whole numbers. A product has the error of its factor,
// half of S, some 2^-16 of the largest; one in bf16 has 2^-9 of its own.
//
// Few rows read levels where they are stored, in the order of the memory, and a lone one multiplies them as they come.
// Stateless; scratch is on the stack.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

// Levels and scales of a partition that many rows use.
template <typename Row>
void decode_byte_rows(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s, ByteRowScratch& b) {
  const KeyRange chunks = whole_chunks(keys);
  constexpr int64_t kLines = (kRowKeys * Row::kBytes + 63) / 64;
  const int64_t blocks = row_blocks(a.head_dim), value_blocks = row_blocks(value_dim_of(a));
  find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  for (int64_t key = chunks.begin; key < chunks.end; key += kRowKeys) {
    s.ahead.ask_lines(kLines * blocks);
    load_key_scales<Row>(s.row, blocks, key, b);
    decode_row_keys<Row>(s.row + key, blocks, s.keys + key * blocks * kRowBlock);
  }
  if (a.scores) return;
  find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  load_value_scales<Row>(s.row, value_blocks, chunks.begin, chunks.end, b);
  for (int64_t strip = chunks.begin / kRowStrip * kRowStrip; strip < chunks.end; strip += kRowStrip) {
    for (int64_t block = 0; block < value_blocks; ++block) {
      s.ahead.ask_lines(kLines * kPartsOfStrip);
      decode_row_values<Row>(s.row, keys_of_strip(strip, chunks), block,
                             s.values + (strip / kRowStrip * value_blocks + block) * kStripBytes);
    }
  }
}

template <typename Row>
void attend_byte_row_block(const AttentionArgs& a, int64_t row, int64_t rows, bool decoded, Bf16Scratch& s,
                           ByteRowScratch& b) {
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  if (!decoded) find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  score_byte_rows<Row>(a, row, rows, chunks, decoded ? s.keys : nullptr, s, b);
  if (a.scores) return keep_scores(a, row, rows, chunks, s);
  weigh_rows(a, row, rows, chunks, s);
  if (!decoded) find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  add_byte_rows<Row>(a, row, rows, chunks, decoded ? s.values : nullptr, s, b);
}

// `Wide` reads the same format for heads that are too large, and for rows with something added; these use f32
// arithmetic.
template <typename Row, typename Wide>
void attend_byte_rows(const AttentionArgs& a) noexcept {
  if (a.head_dim > kBf16MaxHeadDim || a.rest != 0) return attend<Wide>(a);
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  Bf16Scratch s;
  ByteRowScratch b;
  s.ahead.start(a, keys.begin, keys.end);
  const bool decoded = rows > kBlockRows;
  if (decoded) decode_byte_rows<Row>(a, keys, s, b);
  for (int64_t row = 0; row < rows; row += kBlockRows)
    attend_byte_row_block<Row>(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, decoded, s, b);
}

}  // namespace
}  // namespace millrace
