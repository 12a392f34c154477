// Flash-style attention over one partition of keys, written once for every vector width. Include after a simd_*.h,
// simd_math.h, row_decode.h, affine_levels.h, level_tiles_kernel.h, rope_kernel.h and turned_tiles_kernel.h.
//
// Dao et al., 2022, "FlashAttention"; Milakov and Gimelshein, 2018, "Online normalizer calculation".
//
// Keys are processed in tiles of 32, which begin at multiples of 32 slots. A row is one query of one head. For a chunk
// of rows, a tile's keys are decoded and transposed once, and its values are decoded once. Then each small block of
// rows computes:
//
//   scores   kt [head_dim][32 keys]   a lane per key, q broadcast        -> p [rows][32]
//   softmax  running max and sum per row; p = exp(p - max)
//   values   v [32 keys][head_dim]    a lane per dim, p broadcast        -> acc [rows][head_dim]
//
// A row's bits depend only on the row, the tiles and the range of keys it sees. Scores are summed over dims in segments
// of 16, values over keys in ascending order. Rows share loads, but not sums. Keys that a row does not see are neither
// multiplied nor added, and keys that no row sees are not read. Tiles of a codec (LevelTiles) are decoded directly from
// their stored form; all other steps are the same. Stateless; scratch is on the stack.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/ops.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 32;
constexpr int64_t kSegment = 16;      // number of dims that are summed before they are added to a score
constexpr int64_t kMaxHeadDim = 576;  // enough for a latent and its rotated key; larger heads use the reference kernel
constexpr int64_t kRowChunk = 96;     // rows that share one decoding of a tile
constexpr int kTileVectors = static_cast<int>(kTile) / Simd::kLanes;
constexpr int kScoreVectors = 2;  // key vectors per pass of the score kernel
constexpr float kNoKey = -std::numeric_limits<float>::infinity();

struct TileRange {
  int64_t begin = 0;  // keys [begin, end) of the tile, 0..32
  int64_t end = 0;
  bool empty() const { return begin >= end; }
  bool operator==(const TileRange& other) const { return begin == other.begin && end == other.end; }
};

struct AttentionScratch {
  alignas(64) float kt[kMaxHeadDim * kTile];           // [dim][key]
  alignas(64) float v[kTile * kMaxHeadDim];            // [key][padded]
  alignas(64) float rows[Simd::kLanes * kMaxHeadDim];  // keys before transposing
  alignas(64) float residual[kMaxHeadDim];             // residual of one row
  alignas(64) float p[Simd::kRows * kTile];            // scores, then weights
  alignas(64) float tables[18 * kMaxHeadDim];          // scales, zeros and values of levels
  alignas(64) float turn[kMaxHeadDim];                 // rotation of a tile of keys that are stored before RoPE
  alignas(64) float key_unit[kMaxHeadDim];             // for such keys as integers: the factor of each dim of kt
  KeyWordScratch key_words;
  alignas(64) float q[Simd::kRows * kMaxHeadDim];  // queries for such a tile, rotated and multiplied by key_unit
  float rescale[Simd::kRows];
  const uint8_t* key[kTile];    // stored rows; zeros for keys outside the tile's range
  const uint8_t* value[kTile];  // stored rows, or rows of v
};

// Rows of f16 that follow tiles of levels.
struct KvTiles : KvF16 {};
template <typename Kv>
constexpr bool kHasTiles = std::is_same_v<Kv, KvTiles>;

// Used in place of the rows of unseen keys when transposing.
alignas(64) constexpr uint8_t kZeroRow[kMaxHeadDim * 4] = {};

// Reads rows of values that are already decoded to f32. Used if many rows share a tile.
struct Decoded {
  static Simd::F load(const uint8_t* row, int64_t d) { return Simd::load(reinterpret_cast<const float*>(row) + d); }
};

// Returns the keys that the query at `slot` sees in the tile that begins at slot `tile`.
inline TileRange visible(const AttentionArgs& a, int64_t slot, int64_t tile) {
  int64_t end = (slot + 1 < a.key_end ? slot + 1 : a.key_end) - tile;
  int64_t begin = a.window > 0 ? slot + 1 - a.window - tile : 0;
  return {begin > 0 ? begin : 0, end < kTile ? end : kTile};
}

inline int64_t value_stride(const AttentionArgs& a) { return a.value_row_bytes > 0 ? a.value_row_bytes : a.row_bytes; }

// Sets `out` to the addresses of the rows of `keys`. `stride`: bytes from row to row.
inline void find_rows(const AttentionArgs& a, const uint8_t* const* blocks, int64_t stride, int64_t tile,
                      TileRange keys, const uint8_t** out) {
  int64_t block = (tile + keys.begin) / a.block_tokens;
  int64_t within = (tile + keys.begin) % a.block_tokens;
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    out[j] = blocks[block] + within * stride;
    if (++within == a.block_tokens) within = 0, ++block;
  }
}

// Prefetches the rows of the next tile while this one is processed.
inline void prefetch_rows(const AttentionArgs& a, const uint8_t* const* blocks, int64_t tile, int64_t bytes) {
  const TileRange seen = visible(a, a.first_query + a.queries - 1, tile);  // keys that the last query sees
  if (seen.empty()) return;
  const uint8_t* rows[kTile];
  find_rows(a, blocks, bytes, tile, seen, rows);
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    for (int64_t at = 0; at < bytes; at += 64) Simd::prefetch(rows[j] + at);
    for (int64_t at = 0; a.residual_offset != 0 && at < bytes; at += 64)
      Simd::prefetch(rows[j] + a.residual_offset + at);
  }
}

inline int64_t decoded_stride(int64_t head_dim) { return (head_dim + 31) / 32 * 32; }

// Adds the first n values of `row` to `out`.
inline void add_row(const float* row, int64_t n, float* out) {
  int64_t d = 0;
  for (; d + Simd::kLanes <= n; d += Simd::kLanes)
    Simd::store(out + d, Simd::add(Simd::load(out + d), Simd::load(row + d)));
  for (; d < n; ++d) out[d] += row[d];
}

// Decodes a stored row and adds its residual. `decode`: the call's decoder, for formats that use it.
template <typename Kv>
void decode_row(const AttentionArgs& a, void (*decode)(const uint8_t*, float*, int64_t), const uint8_t* row, int64_t n,
                float* out, AttentionScratch& s) {
  const auto whole = [&](const uint8_t* from, float* to) {
    if constexpr (Kv::kByCall)
      decode(from, to, n);
    else
      Kv::decode(from, to, n);
  };
  whole(row, out);
  if (a.residual_offset == 0 || row == kZeroRow) return;
  whole(row + a.residual_offset, s.residual);
  add_row(s.residual, n, out);
}

// Adds the residuals of Simd::kLanes keys to kt.
template <typename Kv>
void add_transposed_residuals(const AttentionArgs& a, const uint8_t* const* keys, float* kt, AttentionScratch& s) {
  const uint8_t* residuals[Simd::kLanes];
  for (int64_t j = 0; j < Simd::kLanes; ++j)
    residuals[j] = keys[j] == kZeroRow ? kZeroRow : keys[j] + a.residual_offset;
  Kv::transpose(residuals, a.head_dim, s.rows, Simd::kLanes);
  for (int64_t d = 0; d < a.head_dim; ++d)
    Simd::store(kt + d * kTile, Simd::add(Simd::load(kt + d * kTile), Simd::load(s.rows + d * Simd::kLanes)));
}

template <typename Kv>
[[gnu::noinline]] void load_keys(const AttentionArgs& a, int64_t tile, TileRange keys, AttentionScratch& s) {
  for (const uint8_t*& row : s.key) row = kZeroRow;
  find_rows(a, a.k_blocks, a.row_bytes, tile, keys, s.key);
  if constexpr (requires { Kv::transpose_tile(s.key, a.head_dim, s.kt); }) {
    if (a.residual_offset == 0 && a.head_dim % Kv::kTransposed == 0) return Kv::transpose_tile(s.key, a.head_dim, s.kt);
  }
  const int64_t stride = decoded_stride(a.head_dim);
  for (int64_t first = 0; first < kTile; first += Simd::kLanes) {
    if constexpr (!Kv::kByCall) {
      if (a.head_dim % Kv::kTransposed == 0) {
        Kv::transpose(s.key + first, a.head_dim, s.kt + first, kTile);
        if (a.residual_offset != 0) add_transposed_residuals<Kv>(a, s.key + first, s.kt + first, s);
        continue;
      }
    }
    const uint8_t* decoded[Simd::kLanes];
    for (int64_t j = 0; j < Simd::kLanes; ++j) {
      float* row = s.rows + j * stride;
      decoded[j] = reinterpret_cast<const uint8_t*>(row);
      decode_row<Kv>(a, a.decode_key, s.key[first + j], a.head_dim, row, s);
    }
    KvF32::transpose(decoded, (a.head_dim + 3) / 4 * 4, s.kt + first, kTile);
  }
}

template <typename Kv>
[[gnu::noinline]] void load_values(const AttentionArgs& a, TileRange keys, AttentionScratch& s) {
  const int64_t dims = value_dim_of(a), stride = decoded_stride(dims);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    float* row = s.v + j * stride;
    decode_row<Kv>(a, a.decode_value, s.value[j], dims, row, s);
    s.value[j] = reinterpret_cast<const uint8_t*>(row);
  }
}

// Adds q[r] . k to p[r] over kCount segments of `dims` dims each, from dim d on, for kRows rows and kVectors vectors of
// keys.
template <int kRows, int kVectors, int kCount>
[[gnu::always_inline]] inline void score_segments(const float* const* q, const float* kt, int64_t d, int64_t dims,
                                                  float* p) {
  Simd::F sum[kCount][kRows][kVectors];
  for (int i = 0; i < kCount; ++i)
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kVectors; ++c) sum[i][r][c] = Simd::zero();
  for (int64_t e = d; e < d + dims; ++e) {
    for (int i = 0; i < kCount; ++i) {
      const float* keys = kt + (e + i * kSegment) * kTile;
      Simd::F k[kVectors];
      for (int c = 0; c < kVectors; ++c) k[c] = Simd::load(keys + c * Simd::kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Simd::F x = Simd::set(q[r][e + i * kSegment]);
        for (int c = 0; c < kVectors; ++c) sum[i][r][c] = Simd::fma(x, k[c], sum[i][r][c]);
      }
    }
  }
  for (int i = 0; i < kCount; ++i) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVectors; ++c) {
        float* target = p + r * kTile + c * Simd::kLanes;
        Simd::store(target, d + i == 0 ? sum[i][r][c] : Simd::add(Simd::load(target), sum[i][r][c]));
      }
    }
  }
}

// Computes p[r][key] = q[r] . k[key] for kRows rows and the whole tile.
template <int kRows>
void score_rows(const float* const* q, const float* kt, int64_t head_dim, float* p) {
  constexpr int kVectors = kRows == 1 ? kTileVectors : kScoreVectors;
  constexpr int kAtOnce = kRows * kVectors <= 4 ? 2 : 1;  // few sums do not hide the latency of an addition
  for (int first = 0; first < kTileVectors; first += kVectors) {
    const float* keys = kt + first * Simd::kLanes;
    float* out = p + first * Simd::kLanes;
    int64_t d = 0;
    for (; kAtOnce > 1 && d + kAtOnce * kSegment <= head_dim; d += kAtOnce * kSegment)
      score_segments<kRows, kVectors, kAtOnce>(q, keys, d, kSegment, out);
    for (; d < head_dim; d += kSegment)
      score_segments<kRows, kVectors, 1>(q, keys, d, d + kSegment < head_dim ? kSegment : head_dim - d, out);
  }
}

// Writes one row's scores of a tile to AttentionArgs::scores.
inline void keep_scores(const AttentionArgs& a, int64_t tile, int64_t row, const float* p) {
  float* out = a.scores + row * a.score_stride + tile - a.key_begin;
  for (int c = 0; c < kTileVectors; ++c) {
    Simd::F v = Simd::load(p + c * Simd::kLanes);
    if (a.softcap > 0) v = Simd::mul(Simd::set(a.softcap), tanh(Simd::div(v, Simd::set(a.softcap))));
    Simd::store(out + c * Simd::kLanes, v);
  }
}

// Converts one row's scores to weights and updates its running maximum and sum. Returns the factor by which its acc
// must be rescaled.
inline float soften_row(float* p, TileRange keys, const AttentionArgs& a, float& max, float& sum) {
  const float softcap = a.softcap;
  Simd::F v[kTileVectors];
  for (int c = 0; c < kTileVectors; ++c) {
    v[c] = Simd::load(p + c * Simd::kLanes);
    if (softcap > 0) v[c] = Simd::mul(Simd::set(softcap), tanh(Simd::div(v[c], Simd::set(softcap))));
  }
  if (keys.begin > 0 || keys.end < kTile) {
    for (int c = 0; c < kTileVectors; ++c) Simd::store(p + c * Simd::kLanes, v[c]);
    for (int64_t j = 0; j < keys.begin; ++j) p[j] = kNoKey;
    for (int64_t j = keys.end; j < kTile; ++j) p[j] = kNoKey;
    for (int c = 0; c < kTileVectors; ++c) v[c] = Simd::load(p + c * Simd::kLanes);
  }
  float new_max = max;
  if (!a.unify) {
    Simd::F top = v[0];
    for (int c = 1; c < kTileVectors; ++c) top = Simd::max(top, v[c]);
    const float tile_max = Simd::largest(top);
    new_max = tile_max <= max ? max : tile_max;
  }
  if (new_max == kNoKey) {  // every visible score is -inf
    for (int c = 0; c < kTileVectors; ++c) Simd::store(p + c * Simd::kLanes, Simd::zero());
    return 1;
  }
  const Simd::F shift = Simd::set(new_max);
  Simd::F total = Simd::zero();
  for (int c = 0; c < kTileVectors; ++c) {
    v[c] = exp(Simd::sub(v[c], shift));
    Simd::store(p + c * Simd::kLanes, v[c]);
    total = Simd::add(total, v[c]);
  }
  const float rescale = max == new_max ? 1.0f : (max == kNoKey ? 0.0f : exp_one(max - new_max));
  sum = sum * rescale + Simd::sum(total);
  max = new_max;
  return rescale;
}

// Computes acc[r][d ...] = acc * rescale + p[r] . v for kRows rows and kCount vectors of dims. acc_stride: floats from
// row to row. If rest > 0, the last vector has only `rest` dims.
template <typename Values, int kRows, int kCount>
void add_values(float* acc, int64_t acc_stride, const float* p, const float* rescale, const uint8_t* const* value,
                int64_t d, int64_t rest, TileRange keys) {
  Simd::F sum[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    const Simd::F factor = Simd::set(rescale[r]);
    for (int c = 0; c < kCount; ++c) {
      const float* source = acc + r * acc_stride + d + c * Simd::kLanes;
      sum[r][c] = Simd::mul(factor, rest ? Simd::load_n(source, rest) : Simd::load(source));
    }
  }
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    Simd::F v[kCount];
    for (int c = 0; c < kCount; ++c) v[c] = Values::load(value[j], d + c * Simd::kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F weight = Simd::set(p[r * kTile + j]);
      for (int c = 0; c < kCount; ++c) sum[r][c] = Simd::fma(weight, v[c], sum[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) {
      float* target = acc + r * acc_stride + d + c * Simd::kLanes;
      if (rest) {
        Simd::store_n(target, sum[r][c], rest);
      } else {
        Simd::store(target, sum[r][c]);
      }
    }
  }
}

template <typename Values, int kRows>
void add_all_values(float* acc, int64_t dims, const float* p, const float* rescale, const uint8_t* const* value,
                    TileRange keys) {
  int64_t d = 0;
  // One or two rows have too few sums to hide the latency of an addition, so they process more columns at a time.
  constexpr int kMore = kRows == 1 ? 4 * Simd::kVectors : kRows == 2 ? 2 * Simd::kVectors : Simd::kVectors;
  for (; d + kMore * Simd::kLanes <= dims; d += kMore * Simd::kLanes) {
    add_values<Values, kRows, kMore>(acc, dims, p, rescale, value, d, 0, keys);
  }
  for (; d + Simd::kVectors * Simd::kLanes <= dims; d += Simd::kVectors * Simd::kLanes) {
    add_values<Values, kRows, Simd::kVectors>(acc, dims, p, rescale, value, d, 0, keys);
  }
  for (; d + Simd::kLanes <= dims; d += Simd::kLanes) {
    add_values<Values, kRows, 1>(acc, dims, p, rescale, value, d, 0, keys);
  }
  if (d < dims) add_values<Values, kRows, 1>(acc, dims, p, rescale, value, d, dims - d, keys);
}

// Returns true if the keys of a tile were stored before RoPE.
inline bool is_turned(const AttentionArgs& a, int64_t tile) {
  return a.tiles && a.tiles->turns && tile < a.encoded_end;
}

// Processes one tile for rows [row, row + kRows).
template <typename Values, int kRows>
void attend_rows(const AttentionArgs& a, int64_t tile, int64_t row, AttentionScratch& s) {
  const float* q[kRows];
  TileRange keys[kRows];
  bool any = false;
  bool alike = true;
  for (int r = 0; r < kRows; ++r) {
    const int64_t query = (row + r) / a.group;
    q[r] = a.q + query * a.q_stride + (row + r) % a.group * a.head_dim;
    if (is_turned(a, tile)) q[r] = turn_query(a, s.turn, s.key_unit, q[r], s.q + r * kMaxHeadDim);
    keys[r] = visible(a, a.first_query + query, tile);
    any = any || !keys[r].empty();
    alike = alike && keys[r] == keys[0];
  }
  if (!any) return;
  score_rows<kRows>(q, s.kt, a.head_dim, s.p);
  if (a.scores) {
    for (int r = 0; r < kRows; ++r) keep_scores(a, tile, row + r, s.p + r * kTile);
    return;
  }
  const int64_t dims = value_dim_of(a);
  for (int r = 0; r < kRows; ++r) {
    if (keys[r].empty()) continue;
    s.rescale[r] = soften_row(s.p + r * kTile, keys[r], a, a.max[row + r], a.sum[row + r]);
    if (!alike) {
      add_all_values<Values, 1>(a.acc + (row + r) * dims, dims, s.p + r * kTile, s.rescale + r, s.value, keys[r]);
    }
  }
  if (alike) add_all_values<Values, kRows>(a.acc + row * dims, dims, s.p, s.rescale, s.value, keys[0]);
}

template <typename Values>
[[gnu::noinline]] void attend_chunk(const AttentionArgs& a, int64_t tile, int64_t row, int64_t row_end,
                                    AttentionScratch& s) {
  for (; row + Simd::kRows <= row_end; row += Simd::kRows) attend_rows<Values, Simd::kRows>(a, tile, row, s);
  if (Simd::kRows > 4 && row + 4 <= row_end) attend_rows<Values, 4>(a, tile, row, s), row += 4;
  if (row + 2 <= row_end) attend_rows<Values, 2>(a, tile, row, s), row += 2;
  if (row < row_end) attend_rows<Values, 1>(a, tile, row, s);
}

inline void prefetch_bytes(const uint8_t* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) Simd::prefetch(from + at);
}

// Returns the levels of the tokens after this tile, in its block or the next one. Returns null if they will not be
// read.
inline const uint8_t* next_levels(const AttentionArgs& a, const uint8_t* const* blocks, int64_t tile) {
  const int64_t next = tile + kTile;
  if (next >= a.encoded_end || next >= a.key_end) return nullptr;
  return blocks[next / a.block_tokens] + next % a.block_tokens * a.tiles->stride;
}

// If the next tile belongs to another block, prefetches the scales and zeros that it has in addition to levels.
inline void prefetch_scales(const AttentionArgs& a, const uint8_t* next, int64_t tile) {
  if (!next || (tile + kTile) % a.block_tokens != 0) return;
  const int64_t halves = a.tiles->zeros_at - a.tiles->scales_at;  // bytes of scales, and of zeros
  prefetch_bytes(next + a.tiles->scales_at, 2 * halves);
  if (a.tiles->outliers > 0) prefetch_bytes(next + a.tiles->outliers_at, 2 * a.tiles->outliers * halves);
}

// Decodes encoded keys and values into the scratch. `keys`: those that at least one row sees.
inline void load_levels(const AttentionArgs& a, int64_t tile, TileRange keys, AttentionScratch& s) {
  const int64_t block = tile / a.block_tokens, first = tile % a.block_tokens;
  const int64_t dims = value_dim_of(a), stride = decoded_stride(dims);
  const uint8_t* const next_keys = next_levels(a, a.k_blocks, tile);
  const uint8_t* const next_values = next_levels(a, a.v_blocks, tile);
  prefetch_scales(a, next_keys, tile);
  const TileView key_tile{*a.tiles, a.k_blocks[block], first, a.head_dim};
  if (!rotates_words(a)) transpose_of (*a.tiles)(key_tile, s.tables, s.kt);
  prefetch_scales(a, next_values, tile);
  const TileView value_tile{*a.tiles, a.v_blocks[block], first, dims, next_keys, next_values};
  decode_of (*a.tiles)(value_tile, keys.begin, keys.end, s.v, stride);
  if (a.tiles->turns) {
    load_turn(a, tile, s.turn);
    finish_keys(a, tile, key_tile, s.key_words, s.key_unit, s.turn, s.kt);
    finish_values(a, tile, value_tile, keys.begin, keys.end, s.v, stride);
  }
  for (int64_t j = keys.begin; j < keys.end; ++j) s.value[j] = reinterpret_cast<const uint8_t*>(s.v + j * stride);
}

// Parts of a kernel that depend on the formats of keys and values.
struct RowParts {
  void (*load_keys)(const AttentionArgs& a, int64_t tile, TileRange keys, AttentionScratch& s);
  void (*load_values)(const AttentionArgs& a, TileRange keys, AttentionScratch& s);
  // Reads values in their stored form; null: values are always decoded first.
  void (*attend_stored)(const AttentionArgs& a, int64_t tile, int64_t row, int64_t row_end, AttentionScratch& s);
  int64_t stored_rows;  // maximum rows for attend_stored; more rows would decode the values several times
  // Null if there are no tiles of levels.
  void (*load_levels)(const AttentionArgs& a, int64_t tile, TileRange keys, AttentionScratch& s);
  const char* name;  // name of the reference kernel
};

constexpr int64_t kFewRows = 2 * Simd::kRows;  // such calls are limited by memory; values are used once or twice

template <typename Values>
constexpr int64_t most_stored_rows() {
  if (requires { Values::kCheap; }) return kFewRows;
  // Whole rows are decoded faster.
  if (requires(const uint8_t* const* rows, float* out) { Values::transpose_tile(rows, 32, out); }) return 0;
  return Simd::kRows;
}

template <typename Keys, typename Values>
constexpr RowParts row_parts() {
  RowParts parts = {load_keys<Keys>, load_values<Values>,
                    nullptr,         0,
                    nullptr,         std::is_same_v<Keys, Values> ? Keys::kName : KvAny::kName};
  if constexpr (!Values::kByCall) {
    if constexpr (most_stored_rows<Values>() > 0) parts.attend_stored = attend_chunk<Values>;
    parts.stored_rows = most_stored_rows<Values>();
  }
  if constexpr (kHasTiles<Keys>) parts.load_levels = load_levels;
  return parts;
}

inline void attend_tile(const RowParts& parts, const AttentionArgs& a, int64_t tile, int64_t row, int64_t row_end,
                        AttentionScratch& s) {
  const int64_t first_slot = a.first_query + row / a.group;
  const int64_t last_slot = a.first_query + (row_end - 1) / a.group;
  const TileRange keys{visible(a, first_slot, tile).begin, visible(a, last_slot, tile).end};
  if (keys.empty()) return;
  if (parts.load_levels && tile < a.encoded_end) {
    parts.load_levels(a, tile, keys, s);
    return attend_chunk<Decoded>(a, tile, row, row_end, s);
  }
  const int64_t rows = row_end - row;
  const bool few = rows <= kFewRows;
  if (few) prefetch_rows(a, a.k_blocks, tile + kTile, a.row_bytes);
  parts.load_keys(a, tile, keys, s);
  if (a.scores) return attend_chunk<Decoded>(a, tile, row, row_end, s);
  if (few && a.v_blocks != a.k_blocks) prefetch_rows(a, a.v_blocks, tile + kTile, value_stride(a));
  find_rows(a, a.v_blocks, value_stride(a), tile, keys, s.value);
  if (rows <= parts.stored_rows && a.residual_offset == 0 && value_dim_of(a) % Simd::kLanes == 0)
    return parts.attend_stored(a, tile, row, row_end, s);
  parts.load_values(a, keys, s);
  attend_chunk<Decoded>(a, tile, row, row_end, s);
}

// Computes rows [first, last), with an empty result to begin with.
inline void attend_chunks(const RowParts& parts, const AttentionArgs& a, int64_t first, int64_t last,
                          AttentionScratch& scratch) {
  const int64_t dims = value_dim_of(a);
  for (int64_t row = first; !a.scores && row < last; ++row) {
    a.max[row] = a.unify ? a.unified_max : kNoKey;
    a.sum[row] = 0;
  }
  for (int64_t i = first * dims; !a.scores && i < last * dims; ++i) a.acc[i] = 0;
  for (int64_t row = first; row < last; row += kRowChunk) {
    const int64_t row_end = row + kRowChunk < last ? row + kRowChunk : last;
    for (int64_t tile = a.key_begin; tile < a.key_end; tile += kTile)
      attend_tile(parts, a, tile, row, row_end, scratch);
  }
}

[[gnu::noinline]] inline void attend_rows_of(const RowParts& parts, const AttentionArgs& a) {
  if (a.head_dim > kMaxHeadDim) return attend_reference(parts.name, a);
  AttentionScratch scratch;
  const int64_t rows = a.queries * a.group;
  attend_chunks(parts, a, 0, rows, scratch);
  for (int64_t row = 0; a.top && row < rows; ++row) a.top[row] = a.max[row];
  if (!a.unify || a.scores) return;
  AttentionArgs own = a;
  own.unify = false;
  for (int64_t row = 0; row < rows; ++row)
    if (!within_unified_range(a.sum[row])) attend_chunks(parts, own, row, row + 1, scratch);
}

template <typename Keys, typename Values = Keys>
void attend(const AttentionArgs& a) noexcept {
  static constexpr RowParts kParts = row_parts<Keys, Values>();
  attend_rows_of(kParts, a);
}

// Joins a partial result to the total of one row: total = total * exp(total_max - top) + acc * exp(max - top), where
// top is the larger maximum. Sums are joined in the same way.
inline void join_row(int64_t head_dim, float max, float sum, const float* acc, float& total_max, float& total_sum,
                     float* total) {
  if (sum == 0) return;
  if (total_sum == 0) {
    total_max = max;
    total_sum = sum;
    for (int64_t d = 0; d < head_dim; ++d) total[d] = acc[d];
    return;
  }
  const float top = max <= total_max ? total_max : max;  // a NaN stays
  const float old_factor = total_max == top ? 1.0f : exp_one(total_max - top);
  const float new_factor = max == top ? 1.0f : exp_one(max - top);
  const Simd::F f = Simd::set(new_factor), g = Simd::set(old_factor);
  int64_t d = 0;
  for (; d + Simd::kLanes <= head_dim; d += Simd::kLanes) {
    Simd::store(total + d, Simd::fma(f, Simd::load(acc + d), Simd::mul(g, Simd::load(total + d))));
  }
  if (d < head_dim) {
    const int64_t n = head_dim - d;
    Simd::store_n(total + d, Simd::fma(f, Simd::load_n(acc + d, n), Simd::mul(g, Simd::load_n(total + d, n))), n);
  }
  total_sum = total_sum * old_factor + sum * new_factor;
  total_max = top;
}

inline void join_partial(int64_t rows, int64_t head_dim, const float* max, const float* sum, const float* acc,
                         float* total_max, float* total_sum, float* total_acc) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    join_row(head_dim, max[row], sum[row], acc + row * head_dim, total_max[row], total_sum[row],
             total_acc + row * head_dim);
  }
}

inline void merge_row(int64_t partials, int64_t rows, int64_t row, int64_t head_dim, const float* max, const float* sum,
                      const float* acc, const float* sink, float* out) {
  float top = kNoKey;
  float total = 0;
  for (int64_t p = 0; p < partials; ++p) {
    join_row(head_dim, max[p * rows + row], sum[p * rows + row], acc + (p * rows + row) * head_dim, top, total, out);
  }
  if (total == 0) {
    for (int64_t d = 0; d < head_dim; ++d) out[d] = 0;
    return;
  }
  if (sink) {
    const float shared = *sink > top ? *sink : top;
    const float factor = exp_one(top - shared);
    for (int64_t d = 0; d < head_dim; ++d) out[d] *= factor;
    total = total * factor + exp_one(*sink - shared);
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] /= total;
}

inline void merge_partials(int64_t partials, int64_t rows, int64_t group, int64_t head_dim, const float* max,
                           const float* sum, const float* acc, const float* sink, float* out) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    merge_row(partials, rows, row, head_dim, max, sum, acc, sink ? sink + row % group : nullptr, out + row * head_dim);
  }
}

}  // namespace
}  // namespace millrace
