// Attention over a partition whose first keys and values are levels (LevelTiles). Raw keys and values may follow; they
// are multiplied in bf16. Include after attention_bf16.h.
//
// `Levels` has the arithmetic of levels:
//   decode(a, begin, end)                       levels of the keys and values [begin, end), which many rows use
//   score(a, row, rows, begin, end, from, s)    scores of keys [begin, end), whole chunks
//   add(a, row, rows, begin, end, from, s)      adds the values [begin, end) to the rows' acc
// from: decode() was called from this key on; negative: it was not. The order of every sum depends on the row and its
// own keys alone, as in attention_bf16.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Computes rows [row, row + rows) of a partition. Keys before `encoded` are encoded; the others are raw.
template <typename Levels>
void attend_level_block(const AttentionArgs& a, int64_t row, int64_t rows, int64_t encoded, int64_t from,
                        Bf16Scratch& s, const Levels& levels) {
  const int64_t dims = value_dim_of(a);
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  const int64_t level_end = chunks.end < encoded ? chunks.end : encoded;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (chunks.begin < level_end) levels.score(a, row, rows, chunks.begin, level_end, from, s);
  if (!raw.empty()) score_tiles(a, row, rows, whole_chunks(raw), s);
  weigh_rows(a, row, rows, chunks, s);
  float* acc = a.acc + row * dims;
  if (raw.empty()) {
    std::memset(acc, 0, static_cast<size_t>(rows * dims) * sizeof(float));
  } else {
    add_tiles(a, row, rows, raw, s);
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
  const int64_t ahead = a.encoded_end - a.key_begin;
  const int64_t encoded = ahead < chunks.begin ? chunks.begin : ahead < chunks.end ? ahead : chunks.end;
  const KeyRange raw{keys.begin > encoded ? keys.begin : encoded, keys.end};
  if (!raw.empty() && !load_tiles<ReadF16, ReadF16>(a, raw, padded_head(a), s) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_level_partition(one, s, levels); });
  const bool decoded = rows > kBlockRows;
  if (decoded && chunks.begin < encoded) levels.decode(a, chunks.begin, encoded);
  for (int64_t row = 0; row < rows; row += kBlockRows)
    attend_level_block(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, encoded, decoded ? chunks.begin : -1,
                       s, levels);
}

}  // namespace
}  // namespace millrace
