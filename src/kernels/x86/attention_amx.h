// Attention over one partition of keys with AMX: the products of attention_bf16.h in tiles of bf16, the rest as there.
// Include after attention_bf16.h and tiles.h.
//
//                       keys 0..15   keys 16..31     keys: two tiles of a chunk, 16 pairs of dims by 16 keys, in place
//   rows 0..15            C0           C1            queries: 16 rows by 32 dims, in place
//   rows 16..31           C2           C3            C: scores, then the same of values: rows by dims, of pairs of keys
//
// Queries, keys, weights and values are rounded to bf16 as there; only sums have another order, that of
// multiply_bf16(): of each 32 dims, or 32 keys of a partition, even ones and odd ones apart. It depends on nothing
// else: a row alone takes the same tiles, with fewer rows. Values of the chunks' unseen keys are zeros.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kAmxRows = 2 * kTileRows;  // of a block

using AmxScratch = BlockScratch<kAmxRows>;

// Tiles 0 to 3: sums. 4, 5: queries or weights. 6, 7: keys or values.
inline TileConfig tiles_for(int64_t rows) {
  TileConfig config;
  const int64_t first = rows < kTileRows ? rows : kTileRows, second = rows - first;
  for (int half = 0; half < 2; ++half) {
    config.set(half, first, 64);
    config.set(6 + half, 16, 64);
    if (second > 0) config.set(2 + half, second, 64);
  }
  config.set(4, first, 64);
  if (second > 0) config.set(5, second, 64);
  return config;
}

// out[r][0..31] = sum over `steps` of left[r][32 values of the step] . right[16 pairs of the step][32 lanes]. Strides
// in bytes: of a row of `left`, of a step of `right`, of a row of `out`.
template <bool kTwo>
void multiply_tiles(const uint8_t* left, int64_t left_stride, const uint8_t* right, int64_t right_step, int64_t steps,
                    float* out, int64_t out_stride) {
  const uint8_t* lower = left + kTileRows * left_stride;
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kTwo) {
    zero_tile<2>();
    zero_tile<3>();
  }
  for (int64_t step = 0; step < steps; ++step, right += right_step) {
    load_tile<4>(left + step * 64, left_stride);
    load_tile<6>(right, kPairBytes);
    multiply_bf16<0, 4, 6>();
    load_tile<7>(right + 64, kPairBytes);
    multiply_bf16<1, 4, 7>();
    if constexpr (kTwo) {
      load_tile<5>(lower + step * 64, left_stride);
      multiply_bf16<2, 5, 6>();
      multiply_bf16<3, 5, 7>();
    }
  }
  store_tile<0>(out, out_stride);
  store_tile<1>(out + 16, out_stride);
  if constexpr (kTwo) {
    float* below = out + kTileRows * (out_stride / 4);
    store_tile<2>(below, out_stride);
    store_tile<3>(below + 16, out_stride);
  }
}

template <bool kTwo>
void attend_amx_block(const AttentionArgs& a, int64_t row, int64_t rows, int64_t padded, AmxScratch& s) {
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  round_queries(a, row, rows, padded, s.query);
  for (int64_t j = chunks.begin; j < chunks.end; j += kKeyChunk)
    multiply_tiles<kTwo>(s.query, kQueryStride, s.keys + j * padded * 2, 16 * kPairBytes, padded / kDimGroup,
                         s.score + j, kScoreStride * 4);
  weigh_rows(a, row, rows, chunks, s);
  const int64_t dims = value_dim_of(a), steps = (chunks.end - chunks.begin) / kKeyChunk;
  for (int64_t d = 0; d < dims; d += kDimGroup)
    multiply_tiles<kTwo>(s.weight + chunks.begin * 2, kWeightStride,
                         s.values + d / kDimGroup * kGroupBytes + chunks.begin / 2 * kPairBytes, 16 * kPairBytes, steps,
                         s.sum + d, kSumStride * 4);
  store_sums(s.sum, rows, dims, a.acc + row * dims);
}

template <typename Keys, typename Values>
void attend_amx_partition(const AttentionArgs& a, AmxScratch& s) {
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0);  // seen by every query
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  const int64_t padded = (a.head_dim + kDimGroup - 1) / kDimGroup * kDimGroup;
  if (!load_tiles<Keys, Values, true>(a, keys, padded, s) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_amx_partition<Keys, Values>(one, s); });
  const int64_t whole = rows / kAmxRows * kAmxRows, rest = rows - whole;
  if (whole > 0) configure_tiles(tiles_for(kAmxRows));
  for (int64_t row = 0; row < whole; row += kAmxRows) attend_amx_block<true>(a, row, kAmxRows, padded, s);
  if (rest > 0) {
    configure_tiles(tiles_for(rest));
    rest > kTileRows ? attend_amx_block<true>(a, whole, rest, padded, s)
                     : attend_amx_block<false>(a, whole, rest, padded, s);
  }
  release_tiles();
}

template <typename Keys, typename WideKeys, typename Values = Keys, typename WideValues = WideKeys>
void attend_amx(const AttentionArgs& a) noexcept {
  if (a.head_dim > kBf16MaxHeadDim) return attend<WideKeys, WideValues>(a);
  AmxScratch scratch;
  attend_amx_partition<Keys, Values>(a, scratch);
}

}  // namespace
}  // namespace millrace
