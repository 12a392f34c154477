// Computes scores of tiles of levels with 8-bit products (attention_byte_levels.h). Include after
// attention_byte_level_codes.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Returns the offset, in a query's planes, of the low planes of the four dims from d on; their high planes follow 8
// bytes later. 32 dims take 64 bytes.
inline int64_t plane_at(int64_t d) { return d / 32 * 64 + d % 16 / 4 * 16 + d % 32 / 16 * 4; }

// Calls use(bits, unit, half) for the two dwords, half 0 and 1, of each of 16 tokens' `units`.
template <int kBits, typename Use>
[[gnu::always_inline]] inline void for_key_dwords(const uint8_t* levels, int64_t stride, int64_t units,
                                                  const Use& use) {
  constexpr int64_t kUnits = kBits == 3 ? 1 : 2;  // units in the 16 bytes that are loaded at a time
  for (int64_t unit = 0; unit < units; unit += kUnits) {
    __m512i words[4];
    transpose_dwords(levels + unit * ByteUnit<kBits>::kBytes, stride, words);
    use(LevelBits{words[0], words[2]}, unit, 0);
    use(LevelBits{words[1], words[2]}, unit, 1);
    if (kUnits == 1 || unit + 1 == units) continue;
    use(LevelBits{words[2], words[2]}, unit + 1, 0);
    use(LevelBits{words[3], words[2]}, unit + 1, 1);
  }
}

// Decodes the keys of 16 tokens to [unit][dword][shift], 64 bytes each: four dims of each token.
template <typename Codes>
void decode_key_bytes(const Codes& codes, const uint8_t* levels, int64_t stride, int64_t units, uint8_t* out) {
  for_key_dwords<Codes::kBits>(
      levels, stride, units, [&](const LevelBits& bits, int64_t, int half) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int k = 0; k < ByteUnit<Codes::kBits>::kShifts; ++k, out += 64)
          _mm512_store_si512(out, codes.key(bits, half, k));
      });
}

// Computes a query's planes, and the values of their units, for up to four places of keys. The scratch has the column
// scales of each place.
inline void scale_query_columns(const AttentionArgs& a, int64_t row, int64_t r, int64_t places, ByteScratch& b) {
  const float* q = query_of(a, row + r);
  __m512 most[kStripPlaces], rest[kStripPlaces], scaled[kStripPlaces][kMaxTilesHeadDim / 16];
  for (int64_t p = 0; p < kStripPlaces; ++p) most[p] = rest[p] = _mm512_setzero_ps();
  for (int64_t p = 0; p < places; ++p) {
    for (int64_t d = 0; d < a.head_dim; d += 32) {
      const QueryDims part(q, d, a.head_dim);
      const float *scale = b.column_scale[p] + d, *zero = b.column_zero[p] + d;
      __m512* x = scaled[p] + d / 16;
      x[0] = _mm512_mul_ps(part.low, _mm512_load_ps(scale));
      x[1] = _mm512_mul_ps(part.high, _mm512_load_ps(scale + 16));
      most[p] = Simd::max(most[p], Simd::max(Simd::abs(x[0]), Simd::abs(x[1])));
      rest[p] = _mm512_fmadd_ps(part.low, _mm512_load_ps(zero), rest[p]);
      rest[p] = _mm512_fmadd_ps(part.high, _mm512_load_ps(zero + 16), rest[p]);
    }
  }
  alignas(16) float largest[kStripPlaces];
  _mm_store_ps(largest, reduce_four(most, Simd::max));
  _mm_store_ps(b.query_rest[r], reduce_four(rest, Simd::add));
  for (int64_t p = 0; p < places; ++p) {
    b.query_scale[r][p] = plane_scale(largest[p]);
    const __m512 inverse = _mm512_set1_ps(plane_inverse(largest[p]));
    uint8_t* out = b.query + (r * kStripPlaces + p) * kPlaneStride;
    const __m512* x = scaled[p];
    for (int64_t d = 0; d < a.head_dim; d += 32, x += 2, out += 64)
      _mm512_store_si512(out, pair_planes(to_planes(x[0], inverse), to_planes(x[1], inverse)));
  }
}

// Variant for keys with scales by tokens: computes planes by groups of dims.
inline void scale_query_groups(const AttentionArgs& a, int64_t row, int64_t r, ByteScratch& b) {
  const float* q = query_of(a, row + r);
  uint8_t* out = b.query + r * kStripPlaces * kPlaneStride;
  for (int64_t first = 0, group = 0; first < a.head_dim; first += a.tiles->group, ++group) {
    const int64_t end = first + a.tiles->group < a.head_dim ? first + a.tiles->group : a.head_dim;
    __m512 most = _mm512_setzero_ps(), rest = _mm512_setzero_ps();
    for (int64_t d = first; d < end; d += 32) {
      const QueryDims part(q, d, a.head_dim);
      most = Simd::max(most, Simd::max(Simd::abs(part.low), Simd::abs(part.high)));
      rest = _mm512_add_ps(rest, _mm512_add_ps(part.low, part.high));
    }
    const float largest = Simd::largest(most);
    b.query_scale[r][group] = plane_scale(largest);
    b.query_rest[r][group] = Simd::sum(rest);
    const __m512 inverse = _mm512_set1_ps(plane_inverse(largest));
    for (int64_t d = first; d < end; d += 32, out += 64) {
      const QueryDims part(q, d, a.head_dim);
      _mm512_store_si512(out, pair_planes(to_planes(part.low, inverse), to_planes(part.high, inverse)));
    }
  }
}

// Converts a row's integer sums of one place or group, for keys from `key` on, into scores.
struct ByteScores {
  bool columns;
  const ByteScratch& b;
  int64_t key, place;  // key: index in the partition; place: index in the strip

  void put(int64_t r, int64_t group, __m512i sum, float* out) const {
    const int64_t at = columns ? place : group;
    const __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(b.query_scale[r][at]));
    const __m512 rest = _mm512_set1_ps(b.query_rest[r][at]);
    if (columns) return _mm512_store_ps(out, _mm512_add_ps(dot, rest));
    __m512 score = _mm512_mul_ps(_mm512_load_ps(b.key_scale[group] + key), dot);
    if (group > 0) score = _mm512_add_ps(score, _mm512_load_ps(out));
    _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_load_ps(b.key_zero[group] + key), rest, score));
  }
};

// Joins the sums of a single row, [shift].
template <typename Codes>
inline __m512i join_lone_sums(const __m512i* sum) {
  __m512i all = sum[0];
#pragma GCC unroll 4
  for (int k = 1; k < ByteUnit<Codes::kBits>::kShifts; ++k) all = _mm512_add_epi32(all, Codes::lone_sum(sum[k], k));
  return all;
}

// Decodes 16 keys and multiplies them by one row. group_units: number of units that share a scale.
template <typename Codes>
void score_vector(const Codes& codes, const uint8_t* levels, int64_t stride, int64_t units, int64_t group_units,
                  const uint8_t* query, const ByteScores& scores, float* out) {
  using Unit = ByteUnit<Codes::kBits>;
  __m512i low[Unit::kShifts], high[Unit::kShifts];
  const auto clear = [&]() __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int k = 0; k < Unit::kShifts; ++k) low[k] = high[k] = _mm512_setzero_si512();
  };
  clear();
  int64_t group = 0, left = group_units;
  const auto end_unit = [&](int64_t unit) __attribute__((always_inline)) {
    if (--left > 0 && unit + 1 < units) return;
    scores.put(0, group, join_planes(join_lone_sums<Codes>(low), join_lone_sums<Codes>(high)), out);
    clear();
    ++group, left = group_units;
  };
  for_key_dwords<Codes::kBits>(
      levels, stride, units, [&](const LevelBits& bits, int64_t unit, int half) __attribute__((always_inline)) {
        const uint8_t* planes = query + plane_at(unit * Unit::kDims + 4 * half);
#pragma GCC unroll 4
        for (int k = 0; k < Unit::kShifts; ++k) {
          const __m512i level = codes.lone_key(bits, half, k);
          low[k] = add_products(low[k], level, broadcast_word(planes + plane_at(8 * k)));
          high[k] = add_products(high[k], level, broadcast_word(planes + plane_at(8 * k) + 8));
        }
        if (half == 1) end_unit(unit);
      });
}

// Multiplies units [begin, end) of 32 decoded keys by kRows rows. vector_bytes: bytes from the first 16 keys to the
// next 16.
template <int kBits, int kRows>
void score_bytes(const uint8_t* keys, int64_t vector_bytes, int64_t begin, int64_t end, const uint8_t* query,
                 int64_t row, int64_t group, const ByteScores& scores, float* out) {
  using Unit = ByteUnit<kBits>;
  __m512i sum[kRows][2][2];  // [vector][plane]
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r][0][0] = sum[r][0][1] = sum[r][1][0] = sum[r][1][1] = _mm512_setzero_si512();
  for (int64_t unit = begin; unit < end; ++unit) {
    const uint8_t* levels = keys + unit * 2 * Unit::kShifts * 64;
    const uint8_t* planes = query + plane_at(unit * Unit::kDims);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * Unit::kShifts; ++i) {
      const int64_t at = plane_at(i % Unit::kShifts * 8 + i / Unit::kShifts * 4);
      const __m512i a = _mm512_load_si512(levels + i * 64), b = _mm512_load_si512(levels + vector_bytes + i * 64);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512i low = broadcast_word(planes + r * kStripPlaces * kPlaneStride + at);
        const __m512i high = broadcast_word(planes + r * kStripPlaces * kPlaneStride + at + 8);
        sum[r][0][0] = add_products(sum[r][0][0], a, low);
        sum[r][1][0] = add_products(sum[r][1][0], b, low);
        sum[r][0][1] = add_products(sum[r][0][1], a, high);
        sum[r][1][1] = add_products(sum[r][1][1], b, high);
      }
    }
  }
  ByteScores second = scores;
  second.key += kVectorKeys;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    scores.put(row + r, group, join_planes(sum[r][0][0], sum[r][0][1]), out + r * kScoreStride);
    second.put(row + r, group, join_planes(sum[r][1][0], sum[r][1][1]), out + r * kScoreStride + kVectorKeys);
  }
}

template <typename Codes>
void decode_key_byte_range(const Codes& codes, const AttentionArgs& a, int64_t begin, int64_t end, ByteScratch& b) {
  using Unit = ByteUnit<Codes::kBits>;
  const int64_t units = Unit::count(a.head_dim);
  uint8_t* out = b.keys;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    b.ahead.ask_lines(4 * b.lines);
    const TilePlace at = b.key_at[key / kSharedTokens];
    for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys, out += units * Unit::kDims * kVectorKeys)
      decode_key_bytes(codes, at.tile + (at.first + t) * a.tiles->stride, a.tiles->stride, units, out);
  }
}

// Computes the scores of the encoded keys [begin, end), which are whole chunks. `from`: first key of those that are
// already decoded; negative: none are.
template <typename Codes>
void score_byte_levels(const Codes& codes, const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin,
                       int64_t end, int64_t from, Bf16Scratch& s, ByteScratch& b) {
  using Unit = ByteUnit<Codes::kBits>;
  const int64_t units = Unit::count(a.head_dim), vector_bytes = units * Unit::kDims * kVectorKeys;
  const bool columns = a.tiles->key_tokens > 0, alone = rows == 1 && from < 0;
  const int64_t group_units = columns ? units : a.tiles->group / Unit::kDims;
  if (!columns)
    for (int64_t r = 0; r < rows; ++r) scale_query_groups(a, row, r, b);
  for (int64_t strip = begin; strip < end; strip += kLevelStrip) {
    const int64_t stop = strip + kLevelStrip < end ? strip + kLevelStrip : end;
    for (int64_t key = strip, place = 0; key < stop; key += kSharedTokens, ++place) {
      const TilePlace at = b.key_at[key / kSharedTokens];
      b.ahead.ask_lines(2 * b.lines);
      if (columns)
        load_column_scales(a, at.tile, at.first, codes.offset, b.column_scale[place], b.column_zero[place]);
      else
        load_token_scales(*a.tiles, at.tile, at.first, groups_of(*a.tiles, a.head_dim), key, codes.offset, b.key_scale,
                          b.key_zero);
    }
    if (columns)
      for (int64_t r = 0; r < rows; ++r) scale_query_columns(a, row, r, (stop - strip) / kSharedTokens, b);
    const uint8_t* keys = from < 0 ? b.keys : b.keys + (strip - from) / kVectorKeys * vector_bytes;
    if (from < 0 && !alone) decode_key_byte_range(codes, a, strip, stop, b);
    for (int64_t key = strip, place = 0; key < stop; key += kSharedTokens, ++place) {
      const uint8_t* query = b.query + (columns ? place * kPlaneStride : 0);
      if (alone) {
        const TilePlace at = b.key_at[key / kSharedTokens];
        for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys) {
          b.ahead.ask_lines(2 * b.lines);
          score_vector(codes, at.tile + (at.first + t) * a.tiles->stride, a.tiles->stride, units, group_units, query,
                       {columns, b, key + t, place}, s.score + key + t);
        }
        continue;
      }
      const ByteScores scores{columns, b, key, place};
      in_parts<6>(rows, [&]<int n>(int64_t r) {
        for (int64_t unit = 0; unit < units; unit += group_units)
          score_bytes<Codes::kBits, n>(
              keys, vector_bytes, unit, unit + group_units < units ? unit + group_units : units,
              query + r * kStripPlaces * kPlaneStride, r, unit / group_units, scores, s.score + r * kScoreStride + key);
      });
      keys += 2 * vector_bytes;
    }
  }
}

}  // namespace
}  // namespace millrace
