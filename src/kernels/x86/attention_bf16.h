// Attention over one partition of keys with bf16 products and f32 sums, for the KV formats with at most 16 bits per
// value. Include after simd_avx512.h, attention_kernel.h, attention_ahead.h, attention_bf16_tiles.h,
// attention_bf16_weights.h and attention_bf16_products.h.
//
// Arithmetic: queries, keys, weights and values are rounded to bf16 (to nearest even). Products are exact; sums are
// f32.
//
//   score   s = sum over pairs of dims, ascending
//   weight  p = bf16(2^(s log2(e) - m)), m the smallest integer above the partition's largest s log2(e)
//   sum     of the rounded weights, so that they add up to one despite the rounding
//   value   acc = sum over pairs of keys, ascending, of p v
//
// Because m is an integer, a different m changes only exponents. So the rounding of the weights does not depend on the
// other keys of the partition. The whole partition is one tile, so no row is rescaled inside it.
//
//   for each block of up to 12 rows (query x head)
//     scores   keys transposed [32 keys a chunk][dims / 2], 12 x 2 registers     -> s [rows][256]
//     weights  one pass for the maximum, one for exp                              -> p [rows][256]
//     values   [32 dims a group][keys / 2], 12 x 2 registers                      -> acc [rows][value_dim]
//
// A row's bits do not depend on its block, because its sums have the same order in every block. A key that a row does
// not see has weight zero and does not change the sums, unless its value is not finite. In that case, each query is
// processed separately.
//
// Many rows share one decoding of the partition into tiles. Few rows process 64 keys at a time and read values in their
// stored form. Both prefetch (attention_ahead.h). Stateless; scratch is on the stack.
#pragma once

#include <cstdint>
#include <type_traits>

namespace millrace {
namespace {

constexpr int64_t kBlockRows = 12;
constexpr int64_t kScoreStride = kAttentionPartition + 16;  // floats; not a multiple of 4 KB / rows
constexpr int64_t kWeightStride = kAttentionPartition * 2 + 64;
constexpr int64_t kQueryStride = kBf16MaxHeadDim * 2 + 64;
constexpr int64_t kWideStride = kBf16MaxHeadDim + 16;  // floats
constexpr int64_t kSumStride = kBf16MaxHeadDim + 16;   // floats
constexpr int64_t kStrip = 64;                         // number of keys that few rows process at a time

// Scratch for blocks of up to kRows rows.
template <int64_t kRows>
struct BlockScratch {
  alignas(64) uint8_t keys[kAttentionPartition * kBf16MaxHeadDim * 2];
  alignas(64) uint8_t values[kAttentionPartition * kBf16MaxHeadDim * 2];
  alignas(64) uint8_t query[kRows * kQueryStride];
  alignas(64) float wide_query[kRows * kWideStride];  // the queries in f32, for FMAs
  alignas(64) float score[kRows * kScoreStride];
  alignas(64) uint8_t weight[kRows * kWeightStride];
  alignas(64) float sum[kRows * kSumStride];    // sums of values, with the dims in the order of the tiles
  const uint8_t* row[kAttentionPartition + 8];  // addresses of stored keys, later of values; written 8 at a time
  Ahead ahead;
  const bool by_fma = bf16_by_fma();
};
using Bf16Scratch = BlockScratch<kBlockRows>;

inline KeyRange seen_by(const AttentionArgs& a, int64_t query) {
  const int64_t slot = a.first_query + query;
  const int64_t end = (slot + 1 < a.key_end ? slot + 1 : a.key_end) - a.key_begin;
  const int64_t begin = a.window > 0 ? slot + 1 - a.window - a.key_begin : 0;
  return {begin > 0 ? begin : 0, end};
}

// Returns the keys that at least one of the queries [first, last] sees.
inline KeyRange seen_by(const AttentionArgs& a, int64_t first, int64_t last) {
  return {seen_by(a, first).begin, seen_by(a, last).end};
}

// Calls `body` with the type of products: FmaProducts or DotProducts.
template <typename Body>
void with_products(bool by_fma, const Body& body) {
  if (!by_fma) return body.template operator()<DotProducts>();
  const SubnormalsAsZero during;
  body.template operator()<FmaProducts>();
}

// Return a block's queries, and (after weigh_rows()) its weights, in the form that `Products` reads. Strides are in
// elements of a Row.
template <typename Products, int64_t kRows>
const typename Products::Row* query_rows(const BlockScratch<kRows>& s) {
  if constexpr (std::is_same_v<Products, DotProducts>) {
    return s.query;
  } else {
    return s.wide_query;
  }
}
template <typename Products, int64_t kRows>
const typename Products::Row* weight_rows(const BlockScratch<kRows>& s) {
  if constexpr (std::is_same_v<Products, DotProducts>) {
    return s.weight;
  } else {
    return s.score;  // scores are no longer needed
  }
}
template <typename Products>
constexpr int64_t kQueryRow = std::is_same_v<Products, DotProducts> ? kQueryStride : kWideStride;
template <typename Products>
constexpr int64_t kWeightRow = std::is_same_v<Products, DotProducts> ? kWeightStride : kScoreStride;

// Computes the scores of kRows rows with kVectors vectors of keys, starting at `chunk`.
template <typename Products, int kRows, int kVectors, int kAsk = 0>
void score_block(const typename Products::Row* query, const uint8_t* chunk, int64_t padded, float* score,
                 Ahead* ahead = nullptr) {
  const int64_t chunk_bytes = padded / 2 * kPairBytes;
  __m512 sum[kRows][kVectors];
  for (auto& row : sum) {
    for (__m512& s : row) s = _mm512_setzero_ps();
  }
  for (int64_t pair = 0; pair < padded / 2; ++pair) {
    if (kAsk > 0 && ahead) ahead->ask<kAsk>();
    typename Products::Vector key[kVectors];
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) {
      key[c] = Products::of_words(_mm512_load_si512(chunk + c / 2 * chunk_bytes + pair * kPairBytes + c % 2 * 64));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto q = Products::factor(query + r * kQueryRow<Products>, pair);
#pragma GCC unroll 16
      for (int c = 0; c < kVectors; ++c) sum[r][c] = Products::add(sum[r][c], key[c], q);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) _mm512_store_ps(score + r * kScoreStride + c * 16, sum[r][c]);
  }
}

// Adds weights . values to the sums, for kRows rows, kGroups groups of 32 dims, and pairs of keys [begin, end).
// `first`: true: the sums begin with zero.
template <typename Products, int kRows, int kGroups, typename Values>
void value_block(const Values& values, const typename Products::Row* weight, int64_t begin, int64_t end, bool first,
                 float* sums, Ahead* ahead) {
  __m512 sum[kRows][2 * kGroups];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < 2 * kGroups; ++c) {
      sum[r][c] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kSumStride + c * 16);
    }
  }
  for (int64_t pair = begin; pair < end; ++pair) {
    if (Values::kLines > 0 && ahead) ahead->ask<kGroups * Values::kLines>();
    typename Products::Vector v[2 * kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) {
      __m512i low, high;
      values.load(pair, g, low, high);
      v[2 * g] = Products::of_words(low);
      v[2 * g + 1] = Products::of_words(high);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto w = Products::factor(weight + r * kWeightRow<Products>, pair);
#pragma GCC unroll 16
      for (int c = 0; c < 2 * kGroups; ++c) sum[r][c] = Products::add(sum[r][c], v[c], w);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < 2 * kGroups; ++c) _mm512_store_ps(sums + r * kSumStride + c * 16, sum[r][c]);
  }
}

// Writes the sums, which have the order of the tiles, to acc, with ascending dims.
inline void store_sums(const float* sums, int64_t rows, int64_t dims, float* acc) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t r = 0; r < rows; ++r, sums += kSumStride, acc += dims) {
    for (int64_t d = 0; d < dims; d += kDimGroup) {
      const uint32_t mask = dims - d >= kDimGroup ? 0xffffffffu : (1u << (dims - d)) - 1;
      const __m512 low = _mm512_load_ps(sums + d), high = _mm512_load_ps(sums + d + 16);
      _mm512_mask_storeu_ps(acc + d, static_cast<__mmask16>(mask), _mm512_permutex2var_ps(low, first, high));
      _mm512_mask_storeu_ps(acc + d + 16, static_cast<__mmask16>(mask >> 16),
                            _mm512_permutex2var_ps(low, second, high));
    }
  }
}

// Splits the rows into parts of n rows, at most kMax, and calls body.operator()<n>(first row) for each.
template <int kMax, typename Body>
void in_parts(int64_t rows, const Body& body) {
  int64_t row = 0;
  for (; row + kMax <= rows; row += kMax) body.template operator()<kMax>(row);
  if constexpr (kMax > 8)
    if (row + 8 <= rows) body.template operator()<8>(row), row += 8;
  if constexpr (kMax > 4)
    if (row + 4 <= rows) body.template operator()<4>(row), row += 4;
  if constexpr (kMax > 2)
    if (row + 2 <= rows) body.template operator()<2>(row), row += 2;
  if (row < rows) body.template operator()<1>(row);
}

// Splits the rows of a block.
template <typename Body>
void in_twelves(int64_t rows, const Body& body) {
  in_parts<kBlockRows>(rows, body);
}

// Writes a block's queries as bf16, padded with zeros to `padded` dims.
inline void round_queries(const AttentionArgs& a, int64_t row, int64_t rows, int64_t padded, uint8_t* out) {
  for (int64_t r = row; r < row + rows; ++r, out += kQueryStride) {
    const float* q = a.q + r / a.group * a.q_stride + r % a.group * a.head_dim;
    for (int64_t d = 0; d < padded; d += 32) {
      const int64_t left = a.head_dim - d;
      const uint32_t mask = left >= 32 ? 0xffffffffu : (1u << left) - 1;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), q + d);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), q + d + 16);
      _mm512_store_si512(out + d * 2, round_to_bf16(low, high));
    }
  }
}

// Write the rows' queries, and their weights in place of the scores, as f32, if products use FMAs.
template <int64_t kRows>
void widen_queries(int64_t rows, int64_t padded, BlockScratch<kRows>& s) {
  if (s.by_fma) widen_rows(s.query, kQueryStride, rows, 0, padded, s.wide_query, kWideStride);
}
template <int64_t kRows>
void widen_weights(int64_t rows, KeyRange chunks, BlockScratch<kRows>& s) {
  if (s.by_fma) widen_rows(s.weight, kWeightStride, rows, chunks.begin, chunks.end, s.score, kScoreStride);
}

// Returns the smallest integer m with 2^m >= exp(score).
inline float whole_power(float score) {
  const __m512 top = _mm512_mul_ps(_mm512_set1_ps(score), _mm512_set1_ps(kLog2E));
  return Simd::first(_mm512_roundscale_ps(top, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC));
}

// Writes the rows' scores of the chunks to AttentionArgs::scores.
template <int64_t kRows>
void keep_scores(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange chunks, BlockScratch<kRows>& s) {
  for (int64_t r = 0; r < rows; ++r) {
    float* score = s.score + r * kScoreStride;
    if (a.softcap > 0) mask_scores(score, chunks, seen_by(a, (row + r) / a.group), a.softcap);
    float* out = a.scores + (row + r) * a.score_stride;
    for (int64_t j = chunks.begin; j < chunks.end; j += 16) _mm512_storeu_ps(out + j, _mm512_load_ps(score + j));
  }
}

// Computes all rows' maxima first, because a horizontal reduction has a long latency, and then all rows' weights.
// Prefetches kLines lines for each row into L2.
template <int kLines = 0, int64_t kRows>
void weigh_rows(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange chunks, BlockScratch<kRows>& s) {
  float shift[kRows];
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange seen = seen_by(a, (row + r) / a.group);
    float* score = s.score + r * kScoreStride;
    if (seen.begin > chunks.begin || seen.end < chunks.end || a.softcap > 0) {
      mask_scores(score, chunks, seen, a.softcap);
    }
    const float largest = seen.empty() || a.unify ? kNoKey : largest_score(score, chunks);
    if (a.top) a.top[row + r] = largest;
    shift[r] = seen.empty() ? 0 : whole_power(a.unify ? a.unified_max : largest);
    a.max[row + r] = seen.empty() ? kNoKey : shift[r] * kLn2;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (kLines > 0) s.ahead.template ask<kLines, true>();
    const float* score = s.score + r * kScoreStride;
    uint8_t* weight = s.weight + r * kWeightStride;
    float& sum = a.sum[row + r];
    sum = a.unify ? weigh_row<true>(score, weight, chunks, Simd::set(shift[r]))
                  : weigh_row<false>(score, weight, chunks, Simd::set(shift[r]));
    if (!a.unify || within_unified_range(sum) || a.max[row + r] == kNoKey) continue;
    shift[r] = whole_power(largest_score(score, chunks));
    a.max[row + r] = shift[r] * kLn2;
    sum = weigh_row<false>(score, weight, chunks, Simd::set(shift[r]));
  }
}

inline KeyRange whole_chunks(KeyRange keys) {
  return {keys.begin / kKeyChunk * kKeyChunk, (keys.end + kKeyChunk - 1) / kKeyChunk * kKeyChunk};
}

// Sets `out` to the stored rows of `keys`, and to zero rows for the other keys of their chunks.
inline void find_partition_rows(const AttentionArgs& a, const uint8_t* const* blocks, int64_t stride, KeyRange keys,
                                const uint8_t** out) {
  const KeyRange chunks = whole_chunks(keys);
  for (int64_t j = chunks.begin; j < keys.begin; ++j) out[j] = kZeroRow;
  const __m512i places = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i steps = _mm512_mullo_epi64(places, _mm512_set1_epi64(stride));
  int64_t block = (a.key_begin + keys.begin) / a.block_tokens;
  int64_t within = (a.key_begin + keys.begin) % a.block_tokens;
  for (int64_t j = keys.begin; j < keys.end; within = 0) {
    const uint8_t* row = blocks[block++] + within * stride;
    const int64_t left = a.block_tokens - within;
    const int64_t end = left < keys.end - j ? j + left : keys.end;
    for (; j < end; j += 8, row += 8 * stride) {  // writes up to 7 pointers too many, which the code below overwrites
      _mm512_storeu_si512(out + j, _mm512_add_epi64(_mm512_set1_epi64(reinterpret_cast<int64_t>(row)), steps));
    }
    j = end;
  }
  for (int64_t j = keys.end; j < chunks.end; ++j) out[j] = kZeroRow;
}

inline void attend_nothing(const AttentionArgs& a, int64_t row, int64_t rows) {
  if (a.scores) return;
  const int64_t dims = value_dim_of(a);
  for (int64_t r = row; r < row + rows; ++r) {
    if (a.top) a.top[r] = kNoKey;
    a.max[r] = kNoKey;
    a.sum[r] = 0;
    for (int64_t d = 0; d < dims; ++d) a.acc[r * dims + d] = 0;
  }
}

// ---- few rows: one block, memory read once, in order --------------------------------------------------

template <typename Kv>
void score_few(const AttentionArgs& a, KeyRange chunks, int64_t padded, Bf16Scratch& s) {
  const int64_t chunk_bytes = padded / 2 * kPairBytes;
  widen_queries(a.queries * a.group, padded, s);
  with_products(s.by_fma, [&]<typename Products>() {
    for (int64_t j = chunks.begin; j < chunks.end; j += kStrip) {
      const bool two = j + kKeyChunk < chunks.end;
      for (int64_t k = 0; k < (two ? 4 : 2); ++k) {
        transpose_keys<Kv, Kv::kLines>(s.row + j + k * 16, a.head_dim, padded,
                                       s.keys + k / 2 * chunk_bytes + k % 2 * 64, s.ahead);
      }
      in_twelves(a.queries * a.group, [&]<int n>(int64_t r) {
        const auto* query = query_rows<Products>(s) + r * kQueryRow<Products>;
        float* score = s.score + r * kScoreStride + j;
        if constexpr (n <= 4) {
          if (two)
            return score_block<Products, n, 4, Kv::kLines>(query, s.keys, padded, score, r == 0 ? &s.ahead : nullptr);
        }
        score_block<Products, n, 2>(query, s.keys, padded, score);
        if (two) score_block<Products, n, 2>(query, s.keys + chunk_bytes, padded, score + kKeyChunk);
      });
    }
  });
}

template <typename Kv>
void value_few(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s) {
  const int64_t rows = a.queries * a.group, dims = value_dim_of(a);
  const int64_t first = keys.begin / 2, last = (keys.end + 1) / 2;
  widen_weights(rows, whole_chunks(keys), s);
  with_products(s.by_fma, [&]<typename Products>() {
    for (int64_t begin = first; begin < last; begin += kStrip / 2) {
      const int64_t end = begin + kStrip / 2 < last ? begin + kStrip / 2 : last;
      if (Kv::kLines == 1) s.ahead.ask<4>();
      in_twelves(rows, [&]<int n>(int64_t r) {
        const auto* weight = weight_rows<Products>(s) + r * kWeightRow<Products>;
        float* sums = s.sum + r * kSumStride;
        Ahead* ahead = r == 0 ? &s.ahead : nullptr;
        int64_t d = 0;
        if constexpr (n <= 4) {
          for (; d + 2 * kDimGroup <= dims; d += 2 * kDimGroup) {
            value_block<Products, n, 2>(StoredValues<Kv>{s.row, d}, weight, begin, end, begin == first, sums + d,
                                        ahead);
          }
        }
        for (; d < dims; d += kDimGroup) {
          value_block<Products, n, 1>(StoredValues<Kv>{s.row, d}, weight, begin, end, begin == first, sums + d, ahead);
        }
      });
    }
  });
  store_sums(s.sum, rows, dims, a.acc);
}

template <typename Keys, typename Values>
void attend_few(const AttentionArgs& a, KeyRange keys, Bf16Scratch& s) {
  const int64_t rows = a.queries * a.group;
  const KeyRange chunks = whole_chunks(keys);
  s.ahead.start(a, keys.begin, keys.end);
  round_queries(a, 0, rows, a.head_dim, s.query);
  find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  score_few<Keys>(a, chunks, a.head_dim, s);
  if (a.scores) return keep_scores(a, 0, rows, chunks, s);
  weigh_rows(a, 0, rows, chunks, s);
  find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  value_few<Values>(a, keys, s);
}

// ---- many rows: keys and values decoded into tiles -----------------------------------------------------

inline int64_t padded_head(const AttentionArgs& a) { return (a.head_dim + kDimGroup - 1) / kDimGroup * kDimGroup; }

inline void score_tiles(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange chunks, Bf16Scratch& s) {
  const int64_t padded = padded_head(a);
  round_queries(a, row, rows, padded, s.query);
  widen_queries(rows, padded, s);
  with_products(s.by_fma, [&]<typename Products>() {
    in_twelves(rows, [&]<int n>(int64_t r) {
      const auto* query = query_rows<Products>(s) + r * kQueryRow<Products>;
      for (int64_t j = chunks.begin; j < chunks.end; j += kKeyChunk)
        score_block<Products, n, 2>(query, s.keys + j * padded * 2, padded, s.score + r * kScoreStride + j);
    });
  });
}

inline void add_tiles(const AttentionArgs& a, int64_t row, int64_t rows, KeyRange keys, Bf16Scratch& s) {
  const int64_t dims = value_dim_of(a);
  widen_weights(rows, whole_chunks(keys), s);
  with_products(s.by_fma, [&]<typename Products>() {
    in_twelves(rows, [&]<int n>(int64_t r) {
      const auto* weight = weight_rows<Products>(s) + r * kWeightRow<Products>;
      for (int64_t d = 0; d < dims; d += kDimGroup) {
        value_block<Products, n, 1>(TileValues{s.values + d / kDimGroup * kGroupBytes}, weight, keys.begin / 2,
                                    (keys.end + 1) / 2, true, s.sum + r * kSumStride + d, nullptr);
      }
    });
  });
  store_sums(s.sum, rows, dims, a.acc + row * dims);
}

inline void attend_block(const AttentionArgs& a, int64_t row, int64_t rows, Bf16Scratch& s) {
  const KeyRange keys = seen_by(a, row / a.group, (row + rows - 1) / a.group);
  if (keys.empty()) return attend_nothing(a, row, rows);
  const KeyRange chunks = whole_chunks(keys);
  score_tiles(a, row, rows, chunks, s);
  if (a.scores) return keep_scores(a, row, rows, chunks, s);
  weigh_rows(a, row, rows, chunks, s);
  add_tiles(a, row, rows, keys, s);
}

template <typename Keys, int64_t kRows>
void load_key_tiles(const AttentionArgs& a, KeyRange keys, int64_t padded, BlockScratch<kRows>& s) {
  const KeyRange chunks = whole_chunks(keys);
  find_partition_rows(a, a.k_blocks, a.row_bytes, keys, s.row);
  for (int64_t j = chunks.begin; j < chunks.end; j += 16) {
    uint8_t* chunk = s.keys + j / kKeyChunk * kKeyChunk * padded * 2 + j % kKeyChunk * 4;
    transpose_keys<Keys, 2 * Keys::kLines>(s.row + j, a.head_dim, padded, chunk, s.ahead);
  }
}

// Writes the values of `keys` as tiles. kWholeChunks: also writes the other keys of their chunks, as zeros. Returns
// false if a value is not finite.
template <typename Values, bool kWholeChunks = false, int64_t kRows>
bool load_value_tiles(const AttentionArgs& a, KeyRange keys, BlockScratch<kRows>& s) {
  find_partition_rows(a, a.v_blocks, value_stride(a), keys, s.row);
  const KeyRange valued = kWholeChunks ? whole_chunks(keys) : keys;
  return interleave_values<Values>(s.row, valued.begin / 2, (valued.end + 1) / 2, value_dim_of(a), s.values, s.ahead);
}

// Loads the keys, and the values if the call needs them.
template <typename Keys, typename Values, bool kWholeChunks = false, int64_t kRows>
bool load_tiles(const AttentionArgs& a, KeyRange keys, int64_t padded, BlockScratch<kRows>& s) {
  s.ahead.start(a, keys.begin, keys.end);
  load_key_tiles<Keys>(a, keys, padded, s);
  return a.scores || load_value_tiles<Values, kWholeChunks>(a, keys, s);
}

// Calls attend(arguments) for each query separately.
template <typename Attend>
void attend_queries(const AttentionArgs& a, const Attend& attend) {
  for (int64_t i = 0; i < a.queries; ++i) {
    AttentionArgs one = a;
    one.q += i * a.q_stride;
    one.queries = 1;
    one.first_query += i;
    one.max += i * a.group;
    one.sum += i * a.group;
    one.acc += i * a.group * value_dim_of(a);
    if (a.top) one.top += i * a.group;
    attend(one);
  }
}

template <typename Keys, typename Values>
void attend_partition(const AttentionArgs& a, Bf16Scratch& s) {
  const int64_t rows = a.queries * a.group;
  const KeyRange keys = seen_by(a, 0, a.queries - 1);
  if (keys.empty()) return attend_nothing(a, 0, rows);
  const KeyRange least = seen_by(a, a.queries - 1, 0);  // keys that every query sees
  const bool alike = least.begin == keys.begin && least.end == keys.end;
  if (alike && rows <= kBlockRows && a.head_dim % kDimGroup == 0 && value_dim_of(a) % kDimGroup == 0)
    return attend_few<Keys, Values>(a, keys, s);
  if (!load_tiles<Keys, Values>(a, keys, padded_head(a), s) && !alike)
    return attend_queries(a, [&](const AttentionArgs& one) { attend_partition<Keys, Values>(one, s); });
  for (int64_t row = 0; row < rows; row += kBlockRows) {
    attend_block(a, row, rows - row < kBlockRows ? rows - row : kBlockRows, s);
  }
}

// WideKeys and WideValues read the same formats with f32 arithmetic, for heads that are too large for the tiles, and
// for rows with residuals.
template <typename Keys, typename WideKeys, typename Values = Keys, typename WideValues = WideKeys>
void attend_bf16(const AttentionArgs& a) noexcept {
  if (a.head_dim > kBf16MaxHeadDim || a.residual_offset != 0) return attend<WideKeys, WideValues>(a);
  Bf16Scratch scratch;
  attend_partition<Keys, Values>(a, scratch);
}

}  // namespace
}  // namespace millrace
