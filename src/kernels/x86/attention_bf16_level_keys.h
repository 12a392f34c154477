// Scores of tiles of levels (attention_bf16_levels.h). Include after attention_bf16_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// 16 tokens' keys, [unit][dword][shift] of 64 bytes each.
template <int kBits>
void decode_keys(const uint8_t* levels, int64_t stride, int64_t units, __m512i table, uint8_t* out) {
  using Unit = LevelUnit<kBits>;
  for (int64_t unit = 0; unit < units; unit += Unit::kUnits) {
    __m512i words[4];
    transpose_dwords(levels + unit * Unit::kBytes, stride, words);
    const int dwords = Unit::kUnits == 2 && unit + 1 < units ? 4 : 2;
    const auto decode = [&](int dword) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int shift = 0; shift < Unit::kShifts; ++shift, out += 64) {
        __m512i level = _mm512_srli_epi32(words[dword], static_cast<unsigned>(shift * Unit::kStep));
        if constexpr (kBits == 3) {
          const int dim = Unit::dim(2 * dword, shift);  // and dim + 2 in the other word
          level = join_top_bit(level, _mm512_rolv_epi32(words[2], _mm512_set1_epi32((2 - dim) & 31)),
                               _mm512_rolv_epi32(words[2], _mm512_set1_epi32((16 - dim) & 31)));
        }
        _mm512_store_si512(out, _mm512_permutexvar_epi16(level, table));
      }
    };
    decode(0);
    decode(1);
    if (dwords < 4) continue;
    decode(2);
    decode(3);
  }
}

// The order in which 32 dims are multiplied.
template <int kBits>
inline __m512i query_order() {
  using Unit = LevelUnit<kBits>;
  alignas(64) uint16_t places[32];
  int at = 0;
  for (int64_t first = 0; first < 32; first += Unit::kDims)
    for (int dword = 0; dword < 2; ++dword)
      for (int shift = 0; shift < Unit::kShifts; ++shift)
        for (int word = 0; word < 2; ++word)
          places[at++] = static_cast<uint16_t>(first + Unit::dim(2 * dword + word, shift));
  return _mm512_load_si512(places);
}

// 32 dims, or the last ones with zeros behind them.
struct QueryDims {
  __m512 low, high;
  QueryDims(const float* q, int64_t d, int64_t dims) {
    const uint32_t mask = dims - d >= 32 ? 0xffffffffu : (1u << (dims - d)) - 1;
    low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), q + d);
    high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), q + d + 16);
  }
};

inline const float* query_of(const AttentionArgs& a, int64_t row) {
  return a.q + row / a.group * a.q_stride + row % a.group * a.head_dim;
}

inline __m512 low_words(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
inline __m512 high_words(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// ~q, and its sums by group.
template <int kBits>
void round_query_groups(const AttentionArgs& a, int64_t row, int64_t rows, LevelScratch& l) {
  const __m512i order = query_order<kBits>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* q = query_of(a, row + r);
    for (int64_t d = 0; d < a.head_dim;) {
      const int64_t group = d / a.tiles->group;
      __m512 sum = _mm512_setzero_ps();
      for (; d < a.head_dim && d / a.tiles->group == group; d += 32) {
        const QueryDims part(q, d, a.head_dim);
        const __m512i words = round_to_bf16(part.low, part.high);
        sum = _mm512_add_ps(sum, _mm512_add_ps(low_words(words), high_words(words)));
        _mm512_store_si512(l.query + r * kQueryStride + d * 2, _mm512_permutexvar_epi16(order, words));
      }
      l.rest[r][group] = Simd::sum(sum);
    }
  }
}

// ~(q s) for the keys that share these scales, at query[r][place], and adds q z of all dims to their scores later.
template <int kBits>
void scale_queries(const AttentionArgs& a, int64_t row, int64_t rows, int64_t place, LevelScratch& l) {
  const __m512i order = query_order<kBits>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* q = query_of(a, row + r);
    uint8_t* out = l.query + (place * kBlockRows + r) * kQueryStride;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t d = 0; d < a.head_dim; d += 32) {
      const QueryDims part(q, d, a.head_dim);
      const __m512i words = round_to_bf16(_mm512_mul_ps(part.low, _mm512_load_ps(l.column_scale + d)),
                                          _mm512_mul_ps(part.high, _mm512_load_ps(l.column_scale + d + 16)));
      sum = _mm512_fmadd_ps(part.low, _mm512_load_ps(l.column_zero + d), sum);
      sum = _mm512_fmadd_ps(part.high, _mm512_load_ps(l.column_zero + d + 16), sum);
      _mm512_store_si512(out + d * 2, _mm512_permutexvar_epi16(order, words));
    }
    l.rest[r][place] = Simd::sum(sum);
  }
}

// Sums of pairs [begin, end) for kRows rows and kVectors vectors of keys, `vector_bytes` apart; the query of vectors
// 2 i and 2 i + 1 is place_bytes i behind the first. first: sums begin at zero.
template <int kRows, int kVectors>
void dot_levels(const uint8_t* query, int64_t place_bytes, const uint8_t* keys, int64_t vector_bytes, int64_t begin,
                int64_t end, float* out) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) sum[r][c] = _mm512_setzero_ps();
  }
  for (int64_t pair = begin; pair < end; ++pair) {
    __m512i key[kVectors];
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) key[c] = _mm512_load_si512(keys + c * vector_bytes + pair * 64);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kVectors; ++c) {
        const __m512i q = broadcast_word(query + r * kQueryStride + c / 2 * place_bytes + pair * 4);
        sum[r][c] = multiply_add(sum[r][c], key[c], q);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) _mm512_store_ps(out + r * kScoreStride + c * kVectorKeys, sum[r][c]);
  }
}

// All rows of a block, vectors [0, count) of keys.
inline void dot_rows(int64_t rows, int64_t count, const uint8_t* query, int64_t place_bytes, const uint8_t* keys,
                     int64_t vector_bytes, int64_t begin, int64_t end, float* out) {
  in_twelves(rows, [&]<int n>(int64_t r) {
    constexpr int kVectors = n == 1 ? 8 : n == 2 ? 8 : n == 4 ? 4 : 2;
    int64_t v = 0;
    const auto at = [&]<int m>() {
      dot_levels<n, m>(query + r * kQueryStride + v / 2 * place_bytes, place_bytes, keys + v * vector_bytes,
                       vector_bytes, begin, end, out + r * kScoreStride + v * kVectorKeys);
    };
    for (; v + kVectors <= count; v += kVectors) at.template operator()<kVectors>();
    for (; v < count; v += 2) at.template operator()<2>();
  });
}

template <int kBits>
void decode_key_range(const AttentionArgs& a, int64_t begin, int64_t end, int64_t units, uint8_t* out,
                      LevelScratch& l) {
  const __m512i table = code_table<kBits>(a.tiles->codes);
  const int64_t vector_bytes = units * LevelUnit<kBits>::kDims * 32;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    prefetch_tile(a, a.k_blocks, key);
    const TilePlace at = place_of(a, a.k_blocks, key);
    for (int64_t t = 0; t < kSharedTokens; t += kVectorKeys, out += vector_bytes)
      decode_keys<kBits>(at.tile + (at.first + t) * a.tiles->stride, a.tiles->stride, units, table, out);
    if (a.tiles->key_tokens == 0)
      load_token_scales(*a.tiles, at.tile, at.first, groups_of(*a.tiles, a.head_dim), key, middle_of(*a.tiles),
                        l.key_scale, l.key_zero);
  }
}

// score = s dot + z rest, added to the groups before.
inline void join_groups(int64_t rows, int64_t group, int64_t begin, int64_t end, LevelScratch& l, float* score) {
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 rest = _mm512_set1_ps(l.rest[r][group]);
    for (int64_t j = begin; j < end; j += kVectorKeys) {
      const __m512 dot = _mm512_load_ps(l.dot + r * kScoreStride + j - begin);
      float* out = score + r * kScoreStride + j;
      __m512 sum = _mm512_mul_ps(_mm512_load_ps(l.key_scale[group] + j), dot);
      if (group > 0) sum = _mm512_add_ps(sum, _mm512_load_ps(out));
      _mm512_store_ps(out, _mm512_fmadd_ps(_mm512_load_ps(l.key_zero[group] + j), rest, sum));
    }
  }
}

// Scores of the encoded keys [begin, end), whole chunks. decoded: all keys of the partition are in the scratch, from
// key `decoded` on; negative: they are decoded here.
template <int kBits>
void score_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t decoded,
                  Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t units = (a.head_dim + Unit::kDims - 1) / Unit::kDims;
  const int64_t vector_bytes = units * Unit::kDims * 32, pairs = units * Unit::kDims / 2;
  const bool columns = a.tiles->key_tokens > 0;
  if (!columns) round_query_groups<kBits>(a, row, rows, l);
  for (int64_t strip = begin; strip < end; strip += kLevelStrip) {
    const int64_t stop = strip + kLevelStrip < end ? strip + kLevelStrip : end;
    const uint8_t* keys = l.keys;
    if (decoded >= 0)
      keys += (strip - decoded) / kVectorKeys * vector_bytes;
    else
      decode_key_range<kBits>(a, strip, stop, units, l.keys, l);
    const int64_t vectors = (stop - strip) / kVectorKeys;
    if (columns) {
      for (int64_t key = strip; key < stop; key += kSharedTokens) {
        const TilePlace at = place_of(a, a.k_blocks, key);
        load_column_scales(a, at.tile, at.first, middle_of(*a.tiles), l.column_scale, l.column_zero);
        scale_queries<kBits>(a, row, rows, (key - strip) / kSharedTokens, l);
      }
      dot_rows(rows, vectors, l.query, kBlockRows * kQueryStride, keys, vector_bytes, 0, pairs, s.score + strip);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = strip; j < stop; j += kVectorKeys) {
          float* score = s.score + r * kScoreStride + j;
          const __m512 rest = _mm512_set1_ps(l.rest[r][(j - strip) / kSharedTokens]);
          _mm512_store_ps(score, _mm512_add_ps(_mm512_load_ps(score), rest));
        }
      }
      continue;
    }
    const int64_t group_pairs = a.tiles->group / 2;
    for (int64_t g = 0; g * group_pairs < pairs; ++g) {
      const int64_t last = (g + 1) * group_pairs < pairs ? (g + 1) * group_pairs : pairs;
      dot_rows(rows, vectors, l.query, 0, keys, vector_bytes, g * group_pairs, last, l.dot);
      join_groups(rows, g, strip, stop, l, s.score);
    }
  }
}

}  // namespace
}  // namespace millrace
