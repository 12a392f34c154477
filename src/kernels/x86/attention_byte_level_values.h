// Computes sums of values of tiles of levels with 8-bit products (attention_byte_levels.h). Include after
// attention_byte_level_keys.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Transposes a column's levels of four tokens: lane 2 j has byte j of unit 0 of each token, and lane 2 j + 1 has byte j
// of unit 1.
inline __m512i transpose_bytes(__m512i tokens) {
  alignas(64) static constexpr uint16_t kWords[32] = {0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                                      2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
  const __m512i words = _mm512_permutexvar_epi16(_mm512_load_si512(kWords), tokens);
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(words, order);
}

// Loads a column of four tokens.
template <int kBits>
inline LevelBits load_column(const uint8_t* levels, int64_t stride) {
  const __m512i first = load_tokens(levels, stride);
  if constexpr (kBits != 3) return {transpose_bytes(first), first};
  const __m512i last = load_tokens(levels + 8, stride);  // bytes 0 to 15 and 8 to 23 of each token's two units
  const __m512i low = _mm512_mask_shuffle_epi32(first, 0xcccc, last, _MM_PERM_CBAA);
  const __m512i tops =
      _mm512_permutex2var_epi32(first, _mm512_setr_epi32(2, 6, 10, 14, 19, 23, 27, 31, 0, 0, 0, 0, 0, 0, 0, 0), last);
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return {transpose_bytes(low), _mm512_shuffle_epi8(tops, order)};
}

// Returns the number of lines to prefetch with 32 tokens of a column.
template <int kBits>
inline int64_t lines_of_column(const AttentionArgs& a, const ByteScratch& b) {
  const int64_t columns = ByteUnit<kBits>::columns(value_dim_of(a));
  return (6 * b.lines + columns - 1) / columns;
}

// Decodes a column of values [begin, end) to [step of 4 tokens][shift], 64 bytes each.
template <typename Codes>
void decode_value_column(const Codes& codes, const AttentionArgs& a, int64_t begin, int64_t end, int64_t column,
                         uint8_t* out, ByteScratch& b) {
  using Unit = ByteUnit<Codes::kBits>;
  const int64_t lines = lines_of_column<Codes::kBits>(a, b);
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    b.ahead.ask_lines(lines);
    const TilePlace at = b.value_at[key / kSharedTokens];
    const uint8_t* levels = at.tile + at.first * a.tiles->stride + column * 2 * Unit::kBytes;
    for (int64_t t = 0; t < kSharedTokens; t += kByteStep, levels += kByteStep * a.tiles->stride) {
      const LevelBits bits = load_column<Codes::kBits>(levels, a.tiles->stride);
#pragma GCC unroll 4
      for (int k = 0; k < Unit::kShifts; ++k, out += 64) _mm512_store_si512(out, codes.value(bits, k));
    }
  }
}

// The groups that a column's two units belong to.
struct ColumnGroups {
  int64_t first, second;
};
template <int kBits>
inline ColumnGroups groups_of_column(const LevelTiles& tiles, int64_t column, int64_t groups) {
  const int64_t d = column * 2 * ByteUnit<kBits>::kDims;
  const int64_t second = (d + ByteUnit<kBits>::kDims) / tiles.group;
  return {d / tiles.group, second < groups ? second : groups - 1};
}

// Computes by group: a row's weights times scales as planes, the values of their units, and the sums of weights times
// zeros. Planes are stored by the first group of a column, 16 bytes for each four tokens: the low planes of both
// groups, then the high planes.
template <int kBits>
void scale_weight_planes(const AttentionArgs& a, const uint8_t* weight, int64_t begin, int64_t end, int64_t row,
                         ByteScratch& b) {
  const int64_t dims = value_dim_of(a), groups = groups_of(*a.tiles, dims);
  const auto widen = [](const uint8_t* words) {
    const __m256i half = _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  };
  __m512 p[kAttentionPartition / 16];
  for (int64_t j = begin; j < end; j += 16) p[j / 16] = widen(weight + j * 2);
  float inverse[kMaxLevelGroups];
  for (int64_t g = 0; g < groups; ++g) {
    __m512 most = _mm512_setzero_ps(), rest = _mm512_setzero_ps();
    for (int64_t j = begin; j < end; j += 16) {
      if (row == 0 && g == 0) b.ahead.ask_lines(b.lines);
      most = Simd::max(most, Simd::abs(_mm512_mul_ps(p[j / 16], _mm512_load_ps(b.value_scale[g] + j))));
      rest = _mm512_fmadd_ps(p[j / 16], _mm512_load_ps(b.value_zero[g] + j), rest);
    }
    const float largest = Simd::largest(most);
    b.weight_scale[row][g] = plane_scale(largest);
    b.weight_rest[row][g] = Simd::sum(rest);
    inverse[g] = plane_inverse(largest);
  }
  for (int64_t column = 0, last = -1; column < ByteUnit<kBits>::columns(dims); ++column) {
    const ColumnGroups of = groups_of_column<kBits>(*a.tiles, column, groups);
    if (of.first == last) continue;
    last = of.first;
    uint8_t* out = b.weight[row][of.first];
    const __m512 x = _mm512_set1_ps(inverse[of.first]), y = _mm512_set1_ps(inverse[of.second]);
    for (int64_t j = begin; j < end; j += 16) {
      const auto planes = [&](int64_t g, __m512 by) {
        return to_planes(_mm512_mul_ps(p[j / 16], _mm512_load_ps(b.value_scale[g] + j)), by);
      };
      const __m512i one = planes(of.first, x);
      _mm512_store_si512(out + j * 4, pair_planes(one, of.first == of.second ? one : planes(of.second, y)));
    }
  }
}

inline __m512i broadcast_pair(const uint8_t* p) {
  int64_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi64(pair);
}

// Adds a row's sums of a column, [shift], to its acc.
template <int kBits>
void put_column(const AttentionArgs& a, int64_t row, int64_t column, ColumnGroups of, const __m512i* sum, float* acc,
                const ByteScratch& b) {
  using Unit = ByteUnit<kBits>;
  const __mmask16 odd = 0xaaaa;
  const auto both = [&](const float* of_group) {
    return _mm512_mask_mov_ps(_mm512_set1_ps(of_group[of.first]), odd, _mm512_set1_ps(of_group[of.second]));
  };
  const __m512 scale = both(b.weight_scale[row]), rest = both(b.weight_rest[row]);
  __m512 value[Unit::kShifts];
#pragma GCC unroll 4
  for (int k = 0; k < Unit::kShifts; ++k) value[k] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[k]), scale, rest);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#pragma GCC unroll 2
  for (int unit = 0; unit < 2; ++unit) {
#pragma GCC unroll 2
    for (int k = 0; k < Unit::kShifts; k += 2) {
      const int64_t d = (2 * column + unit) * Unit::kDims + 8 * k, left = value_dim_of(a) - d;
      if (left <= 0) return;
      const __m512i order = _mm512_add_epi32(even, _mm512_set1_epi32(unit));
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1);
      const __m512 dims = _mm512_permutex2var_ps(value[k], order, value[k + 1]);
      _mm512_mask_storeu_ps(acc + d, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, acc + d), dims));
    }
  }
}

// Decodes a column and computes one row's sums of it.
template <typename Codes>
void add_column(const Codes& codes, const AttentionArgs& a, int64_t begin, int64_t end, int64_t column, ColumnGroups of,
                float* acc, ByteScratch& b) {
  using Unit = ByteUnit<Codes::kBits>;
  const int64_t lines = lines_of_column<Codes::kBits>(a, b);
  __m512i low[Unit::kShifts], high[Unit::kShifts];
#pragma GCC unroll 4
  for (int k = 0; k < Unit::kShifts; ++k) low[k] = high[k] = _mm512_setzero_si512();
  const uint8_t* weight = b.weight[0][of.first] + begin * 4;
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    b.ahead.ask_lines(lines);
    const TilePlace at = b.value_at[key / kSharedTokens];
    const uint8_t* levels = at.tile + at.first * a.tiles->stride + column * 2 * Unit::kBytes;
    for (int64_t t = 0; t < kSharedTokens; t += kByteStep, levels += kByteStep * a.tiles->stride, weight += 16) {
      const LevelBits bits = load_column<Codes::kBits>(levels, a.tiles->stride);
      const __m512i w_low = broadcast_pair(weight), w_high = broadcast_pair(weight + 8);
#pragma GCC unroll 4
      for (int k = 0; k < Unit::kShifts; ++k) {
        const __m512i level = codes.lone_value(bits, k);
        low[k] = add_products(low[k], level, w_low);
        high[k] = add_products(high[k], level, w_high);
      }
    }
  }
  __m512i sum[Unit::kShifts];
#pragma GCC unroll 4
  for (int k = 0; k < Unit::kShifts; ++k) sum[k] = Codes::lone_sum(join_planes(low[k], high[k]), k);
  put_column<Codes::kBits>(a, 0, column, of, sum, acc, b);
}

// Computes kRows rows' sums of a decoded column.
template <int kBits, int kRows>
void add_column_rows(const AttentionArgs& a, int64_t row, int64_t begin, int64_t end, int64_t column, ColumnGroups of,
                     const uint8_t* values, float* acc, const ByteScratch& b) {
  using Unit = ByteUnit<kBits>;
  __m512i low[kRows][Unit::kShifts], high[kRows][Unit::kShifts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < Unit::kShifts; ++k) low[r][k] = high[r][k] = _mm512_setzero_si512();
  }
  const uint8_t* weight = b.weight[row][of.first] + begin * 4;
  for (int64_t key = begin; key < end; key += kByteStep, values += Unit::kShifts * 64, weight += 16) {
    __m512i level[Unit::kShifts];
#pragma GCC unroll 4
    for (int k = 0; k < Unit::kShifts; ++k) level[k] = _mm512_load_si512(values + k * 64);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* planes = weight + r * static_cast<int64_t>(sizeof b.weight[0]);
      const __m512i w_low = broadcast_pair(planes), w_high = broadcast_pair(planes + 8);
#pragma GCC unroll 4
      for (int k = 0; k < Unit::kShifts; ++k) {
        low[r][k] = add_products(low[r][k], level[k], w_low);
        high[r][k] = add_products(high[r][k], level[k], w_high);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i sum[Unit::kShifts];
#pragma GCC unroll 4
    for (int k = 0; k < Unit::kShifts; ++k) sum[k] = join_planes(low[r][k], high[r][k]);
    put_column<kBits>(a, row + r, column, of, sum, acc + r * value_dim_of(a), b);
  }
}

// Adds the encoded values [begin, end), which are whole chunks, to the rows' acc. `from`: first key of those that are
// already decoded; negative: none are.
template <typename Codes>
void add_byte_levels(const Codes& codes, const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end,
                     int64_t from, const Bf16Scratch& s, ByteScratch& b) {
  constexpr int kBits = Codes::kBits;
  using Unit = ByteUnit<kBits>;
  const int64_t dims = value_dim_of(a), groups = groups_of(*a.tiles, dims);
  for (int64_t key = begin; key < end; key += kSharedTokens) {
    const TilePlace at = b.value_at[key / kSharedTokens];
    if (row == 0) b.ahead.ask_lines(2 * b.lines);
    load_token_scales(*a.tiles, at.tile, at.first, groups, key, codes.offset, b.value_scale, b.value_zero);
  }
  for (int64_t r = 0; r < rows; ++r) scale_weight_planes<kBits>(a, s.weight + r * kWeightStride, begin, end, r, b);
  constexpr int64_t kStepBytes = Unit::kShifts * 64, kColumn = kWeightSteps * kStepBytes;
  float* acc = a.acc + row * dims;
  for (int64_t column = 0; column < Unit::columns(dims); ++column) {
    const ColumnGroups of = groups_of_column<kBits>(*a.tiles, column, groups);
    if (rows == 1 && from < 0) {
      add_column(codes, a, begin, end, column, of, acc, b);
      continue;
    }
    const uint8_t* values = b.values;
    if (from < 0)
      decode_value_column(codes, a, begin, end, column, b.values, b);
    else
      values += column * kColumn + (begin - from) / kByteStep * kStepBytes;
    in_parts<Unit::kShifts == 4 ? 3 : 6>(rows, [&]<int n>(int64_t r) {
      add_column_rows<kBits, n>(a, r, begin, end, column, of, values, acc + r * dims, b);
    });
  }
}

}  // namespace
}  // namespace millrace
