// Attention over one partition of keys with AMX. Products use tiles of bf16; all other steps are those of
// attention_bf16.h. Include after attention_bf16.h and tiles.h.
//
//                       keys 0..15   keys 16..31     keys: two tiles of a chunk, 16 pairs of dims by 16 keys, in place
//   rows 0..15            C0           C1            queries: 16 rows by 32 dims, in place
//   rows 16..31           C2           C3            C: scores, then the same of values: rows by dims, of pairs of keys
//
// Queries, keys, weights and values are rounded to bf16 as in attention_bf16.h. Only the order of sums differs; it is
// that of multiply_bf16(): within each 32 dims, or 32 keys of a partition, even and odd ones are summed separately. The
// order does not depend on the number of rows, because one row uses the same tiles with fewer rows. Values of unseen
// keys in a chunk are zeros.
#pragma once

#include <cstdint>

namespace millrace {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kAmxRows = 2 * kTileRows;  // rows of a block
constexpr int64_t kStepBytes = 16 * kPairBytes;
// Lines that each row prefetches; 256 rows prefetch 64 KB, a partition of f16 heads of 64 dims.
constexpr int kNextLines = 4;

using AmxScratch = BlockScratch<kAmxRows>;

// Tiles 0 to 3 are sums, tiles 4 and 5 queries or weights, tiles 6 and 7 keys or values.
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

// Computes out[r][0..31] = sum over steps of left[r][32 values of the step] . right[16 pairs of the step][32 lanes].
// Strides of `left` and `out` are in bytes.
template <bool kTwo>
void multiply_tiles(const uint8_t* left, int64_t left_stride, const uint8_t* right, int64_t steps, float* out,
                    int64_t out_stride) {
  const uint8_t* lower = left + kTileRows * left_stride;
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kTwo) {
    zero_tile<2>();
    zero_tile<3>();
  }
  for (int64_t step = 0; step < steps; ++step, right += kStepBytes) {
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

// kLines: lines of the next partition to prefetch, for each row.
template <bool kTwo, int kLines = 0>
void attend_amx_block(const AttentionArgs& a, int64_t row, int64_t rows, int64_t padded, AmxScratch& s) {
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  round_queries(a, row, rows, padded, s.query);
  for (int64_t j = chunks.begin; j < chunks.end; j += kKeyChunk)
    multiply_tiles<kTwo>(s.query, kQueryStride, s.keys + j * padded * 2, padded / kDimGroup, s.score + j,
                         kScoreStride * 4);
  weigh_rows<kLines>(a, row, rows, chunks, s);
  const int64_t dims = value_dim_of(a), steps = (chunks.end - chunks.begin) / kKeyChunk;
  for (int64_t d = 0; d < dims; d += kDimGroup)
    multiply_tiles<kTwo>(s.weight + chunks.begin * 2, kWeightStride,
                         s.values + d / kDimGroup * kGroupBytes + chunks.begin / 2 * kPairBytes, steps, s.sum + d,
                         kSumStride * 4);
  store_sums(s.sum, rows, dims, a.acc + row * dims);
}

// ---- up to 16 rows that see the same keys: keys are multiplied in their order, 16 by 16 rows --------------------

// Four sums are computed at once, because each product waits for the previous product of its sum.
//
//   tiles 0 to 3   scores: of 16 keys each, by rows     values: rows by 16 dims each
//   tile 4         queries                               weights
//   tiles 5 to 7   keys                                  values
inline TileConfig score_tiles_for(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) config.set(tile, 16, rows * 4);
  for (int tile = 5; tile < 8; ++tile) config.set(tile, 16, 64);
  return config;
}

inline TileConfig value_tiles_for(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 5; ++tile) config.set(tile, rows, 64);
  for (int tile = 5; tile < 8; ++tile) config.set(tile, 16, 64);
  return config;
}

// Writes the queries as the right operand: [step of 32 dims][16 pairs][16 rows].
inline void turn_queries(const AttentionArgs& a, int64_t rows, int64_t padded, AmxScratch& s, uint8_t* out) {
  round_queries(a, 0, rows, padded, s.query);
  for (int64_t d = 0; d < padded; d += kDimGroup, out += kStepBytes / 2) {
    __m512i row[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
      row[r] = r < rows ? _mm512_load_si512(s.query + r * kQueryStride + d * 2) : _mm512_setzero_si512();
    transpose_16(row);
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; ++pair) _mm512_store_si512(out + pair * 64, row[pair]);
  }
}

// Transposes [16 keys][4 rows] to score[r][16 keys].
inline void turn_four(const float* turned, int64_t rows, float* score) {
  const __m512i low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
  const __m512 a = _mm512_load_ps(turned), b = _mm512_load_ps(turned + 16);
  const __m512 c = _mm512_load_ps(turned + 32), d = _mm512_load_ps(turned + 48);
  const __m512 first = _mm512_permutex2var_ps(a, low, b), second = _mm512_permutex2var_ps(c, low, d);
  _mm512_store_ps(score, _mm512_shuffle_f32x4(first, second, 0x44));
  if (rows > 1) _mm512_store_ps(score + kScoreStride, _mm512_shuffle_f32x4(first, second, 0xee));
  if (rows <= 2) return;
  const __m512 third = _mm512_permutex2var_ps(a, high, b), fourth = _mm512_permutex2var_ps(c, high, d);
  _mm512_store_ps(score + 2 * kScoreStride, _mm512_shuffle_f32x4(third, fourth, 0x44));
  if (rows > 3) _mm512_store_ps(score + 3 * kScoreStride, _mm512_shuffle_f32x4(third, fourth, 0xee));
}

// Transposes [16 keys][16 rows] to score[r][16 keys].
inline void turn_sixteen(const float* turned, int64_t rows, float* score) {
  __m512i row[16];
#pragma GCC unroll 16
  for (int k = 0; k < 16; ++k) row[k] = _mm512_load_si512(turned + k * 16);
  transpose_16(row);
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r)
    if (r < rows) _mm512_store_si512(score + r * kScoreStride, row[r]);
}

// Multiplies kGroups * 16 keys of `padded` bf16 each by the queries, and writes out [keys][rows] with `stride` bytes
// from key to key. It prefetches more than it reads, so that memory is not idle during the products.
template <int kGroups>
void score_keys(const uint8_t* keys, int64_t padded, const uint8_t* queries, float* out, int64_t stride, Ahead& ahead) {
  const int64_t row = padded * 2, group = kTileRows * row;
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kGroups > 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
  for (int64_t d = 0; d < padded; d += kDimGroup, queries += kStepBytes / 2, keys += kDimGroup * 2) {
    ahead.ask<8>();
    load_tile<4>(queries, 64);
    load_tile<5>(keys, row);
    multiply_bf16<0, 5, 4>();
    load_tile<6>(keys + group, row);
    multiply_bf16<1, 6, 4>();
    if constexpr (kGroups > 2) {
      load_tile<7>(keys + 2 * group, row);
      multiply_bf16<2, 7, 4>();
      load_tile<5>(keys + 3 * group, row);
      multiply_bf16<3, 5, 4>();
    }
  }
  const int64_t next = kTileRows * stride / 4;
  store_tile<0>(out, stride);
  store_tile<1>(out + next, stride);
  if constexpr (kGroups > 2) {
    store_tile<2>(out + 2 * next, stride);
    store_tile<3>(out + 3 * next, stride);
  }
}

// Computes the sums of one or two groups of 32 dims, over `steps` steps of 32 keys.
template <bool kTwo>
void sum_values(const uint8_t* weight, const uint8_t* values, int64_t steps, float* out, Ahead& ahead) {
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (kTwo) {
    zero_tile<2>();
    zero_tile<3>();
  }
  for (int64_t step = 0; step < steps; ++step, weight += 64, values += kStepBytes) {
    ahead.ask<8>();
    load_tile<4>(weight, kWeightStride);
    load_tile<5>(values, kPairBytes);
    multiply_bf16<0, 4, 5>();
    load_tile<6>(values + 64, kPairBytes);
    multiply_bf16<1, 4, 6>();
    if constexpr (kTwo) {
      load_tile<7>(values + kGroupBytes, kPairBytes);
      multiply_bf16<2, 4, 7>();
      load_tile<5>(values + kGroupBytes + 64, kPairBytes);
      multiply_bf16<3, 4, 5>();
    }
  }
  store_tile<0>(out, kSumStride * 4);
  store_tile<1>(out + 16, kSumStride * 4);
  if constexpr (kTwo) {
    store_tile<2>(out + 32, kSumStride * 4);
    store_tile<3>(out + 48, kSumStride * 4);
  }
}

// Writes keys [j, j + count) as bf16, one after the other.
template <typename Keys>
void round_keys(const AttentionArgs& a, int64_t j, int64_t count, int64_t padded, AmxScratch& s) {
  uint8_t* out = s.keys;
  for (int64_t k = j; k < j + count; ++k) {
    for (int64_t d = 0; d < padded; d += kDimGroup, out += kDimGroup * 2) {
      if (k % 2 == 0) s.ahead.ask<Keys::kLines>();
      const int64_t left = a.head_dim - d;
      _mm512_store_si512(out, left >= kDimGroup ? Keys::load(s.row[k], d) : Keys::load_n(s.row[k], d, left));
    }
  }
}

template <typename Keys, typename Values>
void attend_amx_few(const AttentionArgs& a, KeyRange keys, int64_t padded, AmxScratch& s) {
  const int64_t rows = a.queries * a.group, dims = value_dim_of(a);
  const KeyRange chunks = whole_chunks(keys);
  s.ahead.start(a, keys.begin, keys.end);
  configure_tiles(score_tiles_for(rows));
  auto* queries = reinterpret_cast<uint8_t*>(s.sum);  // s.sum is not used before the sums of values
  turn_queries(a, rows, padded, s, queries);
  const int64_t columns = rows == 1 ? 1 : rows <= 4 ? 4 : 16;  // columns of the scores, one key after the other
  float* turned = rows == 1 ? s.score : reinterpret_cast<float*>(s.values);  // s.values is not used before the weights
  find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  for (int64_t j = chunks.begin; j < chunks.end; j += kStrip) {
    const int64_t count = chunks.end - j < kStrip ? kKeyChunk : kStrip;
    round_keys<Keys>(a, j, count, padded, s);
    count == kStrip ? score_keys<4>(s.keys, padded, queries, turned + j * columns, columns * 4, s.ahead)
                    : score_keys<2>(s.keys, padded, queries, turned + j * columns, columns * 4, s.ahead);
  }
  for (int64_t j = chunks.begin; rows > 1 && j < chunks.end; j += 16)
    rows <= 4 ? turn_four(turned + j * 4, rows, s.score + j) : turn_sixteen(turned + j * 16, rows, s.score + j);
  weigh_rows<16>(a, 0, rows, chunks, s);
  find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  interleave_values<Values, false>(s.row, chunks.begin / 2, chunks.end / 2, dims, s.values, s.ahead);
  configure_tiles(value_tiles_for(rows));
  const int64_t steps = (chunks.end - chunks.begin) / kKeyChunk;
  for (int64_t d = 0; d < dims; d += 2 * kDimGroup) {
    const uint8_t* values = s.values + d / kDimGroup * kGroupBytes + chunks.begin / 2 * kPairBytes;
    dims - d > kDimGroup ? sum_values<true>(s.weight + chunks.begin * 2, values, steps, s.sum + d, s.ahead)
                         : sum_values<false>(s.weight + chunks.begin * 2, values, steps, s.sum + d, s.ahead);
  }
  store_sums(s.sum, rows, dims, a.acc);
  release_tiles();
}

template <typename Keys, typename Values>
void attend_amx_partition(const AttentionArgs& a, AmxScratch& s) {
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0);  // keys that every query sees
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  const int64_t padded = (a.head_dim + kDimGroup - 1) / kDimGroup * kDimGroup;
  if (alike && rows <= kTileRows) return attend_amx_few<Keys, Values>(a, keys, padded, s);
  if (!load_tiles<Keys, Values, true>(a, keys, padded, s) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_amx_partition<Keys, Values>(one, s); });
  const int64_t whole = rows / kAmxRows * kAmxRows, rest = rows - whole;
  if (whole > 0) {
    configure_tiles(tiles_for(kAmxRows));
    s.ahead.start_next(a);
  }
  for (int64_t row = 0; row < whole; row += kAmxRows) {
    if (whole >= 4 * kAmxRows)
      attend_amx_block<true, kNextLines>(a, row, kAmxRows, padded, s);
    else
      attend_amx_block<true, 4 * kNextLines>(a, row, kAmxRows, padded, s);
  }
  if (rest > 0) {
    configure_tiles(tiles_for(rest));
    rest > kTileRows ? attend_amx_block<true>(a, whole, rest, padded, s)
                     : attend_amx_block<false>(a, whole, rest, padded, s);
  }
  release_tiles();
}

template <typename Keys, typename WideKeys, typename Values = Keys, typename WideValues = WideKeys>
void attend_amx(const AttentionArgs& a) noexcept {
  if (a.head_dim > kBf16MaxHeadDim || a.residual_offset != 0) return attend<WideKeys, WideValues>(a);
  if (a.scores) return attend_bf16<Keys, WideKeys, Values, WideValues>(a);
  AmxScratch scratch;
  attend_amx_partition<Keys, Values>(a, scratch);
}

}  // namespace
}  // namespace millrace
