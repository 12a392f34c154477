// Computes the sums of values in 16-bit words, in caches whose keys are stored before RoPE (attention_word_levels.h).
// Include after attention_word_level_keys.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Number of vectors in a column. A column is 16 bytes of each token; a vector has four dims.
template <int kBits>
constexpr int kColumnVectors = kBits == 2 ? 16 : 8;
template <int kBits>
constexpr int64_t kColumnBytes = WordUnit<kBits>::kUnits* WordUnit<kBits>::kBytes;
constexpr int64_t kStepBytes = kStepVectors * 64;
constexpr int64_t kPartBytes = kAttentionPartition / kWordStep * kStepBytes;  // bytes of 32 dims of a partition

// Calls use(i, codes) for each vector i of a column of eight tokens. Lane 4 l + j has dim j of the vector's four dims,
// as words of tokens 2 l and 2 l + 1.
template <int kBits, typename Use>
[[gnu::always_inline]] inline void for_value_words(const uint8_t* levels, int64_t stride, __m512i table,
                                                   const Use& use) {
  const __m512i even = load_tokens(levels, 2 * stride), odd = load_tokens(levels + stride, 2 * stride);
  const __m512i half[2] = {_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)};
  if constexpr (kBits != 3) {
    constexpr int kStep = WordUnit<kBits>::kStep, kShifts = 16 / kStep;
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
#pragma GCC unroll 8
      for (int i = 0; i < kShifts; ++i)
        use(h * kShifts + i, look_up_words(_mm512_srli_epi16(half[h], static_cast<unsigned>(i * kStep)), table));
    }
  } else {
    // Moves bit 8 k + 2 j + i of a token's 32 top bits to bit 2.
    const __m512i tops[2] = {_mm512_shuffle_epi32(half[1], _MM_PERM_AAAA),
                             _mm512_shuffle_epi32(half[1], _MM_PERM_BBBB)};
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int bit = i % 2 * 8 + i / 4 - 2;
      const __m512i by = _mm512_broadcast_i32x4(_mm_setr_epi32(bit & 31, (bit + 2) & 31, bit + 4, bit + 6));
      const __m512i low = _mm512_srli_epi16(half[0], static_cast<unsigned>(2 * i));
      use(i, look_up_words(with_top_bit(low, _mm512_rorv_epi32(tops[i % 4 / 2], by)), table));
    }
  }
}

// Computes a row's weights times scales as words, for each 8 tokens in the order of for_value_words(), and the sum of
// weights times zeros.
inline void scale_weight_words(const uint8_t* weight, int64_t begin, int64_t end, int64_t r, WordScratch& b) {
  const auto widen = [&](int64_t j) {
    const __m256i half = _mm256_load_si256(reinterpret_cast<const __m256i*>(weight + j * 2));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  __m512 most = _mm512_setzero_ps(), sum = _mm512_setzero_ps(), rest = _mm512_setzero_ps();
  for (int64_t j = begin; j < end; j += 16) {
    const __m512 p = widen(j), size = Simd::abs(_mm512_mul_ps(p, _mm512_load_ps(b.value_scale + j)));
    most = Simd::max(most, size);
    sum = Simd::add(sum, size);
    rest = Simd::fma(p, _mm512_load_ps(b.value_zero + j), rest);
  }
  float unit = Simd::sum(sum) / kMaxWeight;
  const float least = Simd::largest(most) / kLargestWord;
  if (least > unit) unit = least;
  if (unit < kMinRange) unit = 0;
  b.weight_unit[r] = unit * (1 / kCodeOne);
  b.weight_rest[r] = Simd::sum(rest);
  const __m512 inverse = _mm512_set1_ps(unit == 0 ? 0 : 1 / unit);
  const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  for (int64_t j = begin; j < end; j += 16) {
    const __m512 x = _mm512_mul_ps(widen(j), _mm512_load_ps(b.value_scale + j));
    const __m256i words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)));
    const __m512i pairs = _mm512_castsi256_si512(words);
    _mm512_store_si512(b.weight[r] + j * 8, _mm512_permutexvar_epi32(first, pairs));
    _mm512_store_si512(b.weight[r] + j * 8 + 64,
                       _mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(4)), pairs));
  }
}

// Sums each of four vectors over its four lanes of tokens, and returns the sums one after the other.
inline __m512i join_lanes(const __m512i* sum) {
  const auto join = [](__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  };
  return join(join(sum[0], sum[1]), join(sum[2], sum[3]));
}

// Adds a row's sums of 32 dims, in eight vectors, to its acc.
template <int kBits>
void put_values(const __m512i* sum, int64_t r, const WordScratch& b, float* acc) {
  const __m512 unit = _mm512_set1_ps(b.weight_unit[r]), rest = _mm512_set1_ps(b.weight_rest[r]);
  const __m512 x = Simd::fma(_mm512_cvtepi32_ps(join_lanes(sum)), unit, rest);
  const __m512 y = Simd::fma(_mm512_cvtepi32_ps(join_lanes(sum + 4)), unit, rest);
  if constexpr (kBits == 4) {  // lane 8 o + 4 n + j of x: dim 8 n + 2 j + o
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    Simd::store(acc, Simd::add(Simd::load(acc), _mm512_permutexvar_ps(order, x)));
    Simd::store(acc + 16, Simd::add(Simd::load(acc + 16), _mm512_permutexvar_ps(order, y)));
  } else {  // lane 4 k + j of x: dim 8 k + 2 j; of y: the next one
    __m512 low, high;
    Simd::join_pairs(x, y, low, high);
    Simd::store(acc, Simd::add(Simd::load(acc), low));
    Simd::store(acc + 16, Simd::add(Simd::load(acc + 16), high));
  }
}

// Calls each(levels, key, step) for each eight tokens of a column, for values [begin, end).
template <typename Each>
[[gnu::always_inline]] inline void for_value_steps(const AttentionArgs& a, int64_t begin, int64_t end, int64_t offset,
                                                   int64_t lines, WordScratch& b, const Each& each) {
  const int64_t stride = a.tiles->stride;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    b.ahead.ask_lines(lines);
    const TilePlace at = b.value_at[key / kSharedTokens];
    const uint8_t* levels = at.tile + at.first * stride + offset;
    for (int64_t t = 0; t < kSharedTokens; t += kWordStep, levels += kWordStep * stride) each(levels, key + t);
  }
}

// Decodes a column of values [begin, end) to `out`: [32 dims][8 tokens][vector] of 64 bytes each.
template <int kBits>
void decode_value_words(const AttentionArgs& a, int64_t begin, int64_t end, int64_t column, int64_t lines,
                        __m512i codes, WordScratch& b, uint8_t* out) {
  for_value_steps(
      a, begin, end, column * kColumnBytes<kBits>, lines,
      b, [&](const uint8_t* levels, int64_t) __attribute__((always_inline)) {
        for_value_words<kBits>(
            levels, a.tiles->stride, codes, [&](int i, __m512i words) __attribute__((always_inline)) {
              _mm512_store_si512(out + i / 8 * kPartBytes + i % 8 * 64, words);
            });
        out += kStepBytes;
      });
}

// Decodes a column and computes one row's sums of it.
template <int kBits>
void add_value_column(const AttentionArgs& a, int64_t begin, int64_t end, int64_t column, int64_t lines, __m512i codes,
                      WordScratch& b, float* acc) {
  constexpr int kVectors = kColumnVectors<kBits>;
  __m512i sum[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) sum[i] = _mm512_setzero_si512();
  for_value_steps(
      a, begin, end, column * kColumnBytes<kBits>, lines,
      b, [&](const uint8_t* levels, int64_t key) __attribute__((always_inline)) {
        const __m512i weight = _mm512_load_si512(b.weight[0] + key * 8);
        for_value_words<kBits>(
            levels, a.tiles->stride, codes, [&](int i, __m512i words) __attribute__((always_inline)) {
              sum[i] = add_word_products(sum[i], words, weight);
            });
      });
  for (int64_t i = 0; i < kVectors && column * kVectors * 4 + i * 4 < a.head_dim; i += 8)
    put_values<kBits>(sum + i, 0, b, acc + column * kVectors * 4 + i * 4);
}

// Computes kRows rows' sums of 32 decoded dims.
template <int kBits, int kRows>
void add_value_rows(const uint8_t* values, int64_t row, int64_t begin, int64_t end, const WordScratch& b, int64_t dims,
                    float* acc) {
  __m512i sum[kRows][kStepVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kStepVectors; ++i) sum[r][i] = _mm512_setzero_si512();
  }
  for (int64_t key = begin; key < end; key += kWordStep, values += kStepVectors * 64) {
    __m512i weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = _mm512_load_si512(b.weight[row + r] + key * 8);
#pragma GCC unroll 8
    for (int i = 0; i < kStepVectors; ++i) {
      const __m512i words = _mm512_load_si512(values + i * 64);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][i] = add_word_products(sum[r][i], words, weight[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) put_values<kBits>(sum[r], row + r, b, acc + r * dims);
}

// Loads scales and zeros of 32 tokens. They are 0 for a stream's first tokens, whose values are stored separately.
inline void load_value_scales(const AttentionArgs& a, int64_t key, WordScratch& b) {
  const LevelTiles& t = *a.tiles;
  const TilePlace at = b.value_at[key / kSharedTokens];
  for (int64_t i = 0; i < kSharedTokens; i += 16) {
    const int64_t from = 2 * (at.first + i), sinks = t.sink_tokens - a.key_begin - key - i;
    const auto seen = static_cast<__mmask16>(sinks <= 0 ? 0xffff : sinks >= 16 ? 0 : 0xffff << sinks);
    _mm512_store_ps(b.value_scale + key + i, _mm512_maskz_mov_ps(seen, Simd::load_f16(at.tile + t.scales_at + from)));
    _mm512_store_ps(b.value_zero + key + i, _mm512_maskz_mov_ps(seen, Simd::load_f16(at.tile + t.zeros_at + from)));
  }
}

template <int kBits>
struct ValueColumns {
  static constexpr int64_t kDims = kColumnVectors<kBits> * 4;
  __m512i codes;
  int64_t count, lines;  // count: columns; lines: cache lines to prefetch with 32 tokens of a column
  ValueColumns(const AttentionArgs& a, const WordScratch& b)
      : codes(code_words<kBits>(value_codes_of(*a.tiles), kCodeOne)),
        count((a.head_dim + kDims - 1) / kDims),
        lines((6 * b.lines + count - 1) / count) {}
};

template <int kBits>
void decode_values(const AttentionArgs& a, int64_t begin, int64_t end, WordScratch& b) {
  const ValueColumns<kBits> columns(a, b);
  for (int64_t column = 0; column < columns.count; ++column)
    decode_value_words<kBits>(a, begin, end, column, columns.lines, columns.codes, b,
                              b.values + column * columns.kDims / 32 * kPartBytes);
}

// Adds the encoded values [begin, end), which are whole chunks, to the rows' acc. `from`: first key of those that are
// already decoded; negative: none are.
template <int kBits>
void add_word_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, int64_t from,
                     const Bf16Scratch& s, WordScratch& b) {
  const ValueColumns<kBits> columns(a, b);
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    if (row == 0) b.ahead.ask_lines(2 * b.lines);
    load_value_scales(a, key, b);
  }
  for (int64_t r = 0; r < rows; ++r) scale_weight_words(s.weight + r * kWeightStride, begin, end, r, b);
  float* acc = a.acc + row * a.head_dim;
  for (int64_t column = 0; column < columns.count; ++column) {
    if (rows == 1 && from < 0) {
      add_value_column<kBits>(a, begin, end, column, columns.lines, columns.codes, b, acc);
      continue;
    }
    const uint8_t* values = b.values;
    if (from < 0)
      decode_value_words<kBits>(a, begin, end, column, columns.lines, columns.codes, b, b.values);
    else
      values += column * columns.kDims / 32 * kPartBytes + (begin - from) / kWordStep * kStepBytes;
    const int64_t first = column * columns.kDims;
    for (int64_t d = first; d < first + columns.kDims && d < a.head_dim; d += 32, values += kPartBytes)
      in_parts<3>(rows, [&]<int n>(int64_t r) {
        add_value_rows<kBits, n>(values, r, begin, end, b, a.head_dim, acc + r * a.head_dim + d);
      });
  }
}

}  // namespace
}  // namespace millrace
