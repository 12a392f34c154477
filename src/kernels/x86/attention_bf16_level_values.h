// Sums of values of tiles of levels (attention_bf16_levels.h). Include after attention_bf16_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Eight tokens of units that begin at `levels`, and the next; [shift] of each.
template <int kBits, typename Use>
[[gnu::always_inline]] inline void decode_values(const uint8_t* levels, int64_t stride, bool second, __m512i table,
                                                 const Use& use) {
  using Unit = LevelUnit<kBits>;
  const __m512i a = load_tokens(levels, stride), b = load_tokens(levels + 4 * stride, stride);
  const auto decode = [&](__m512i words, int unit) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int shift = 0; shift < Unit::kShifts; ++shift) {
      __m512i level = _mm512_srli_epi32(words, static_cast<unsigned>(shift * Unit::kStep));
      if constexpr (kBits == 3) {
        const int dim = Unit::dim(0, shift);  // of word 0; two more of each word behind it
        const __m512i even = _mm512_shuffle_epi32(a, _MM_PERM_CCCC), odd = _mm512_shuffle_epi32(b, _MM_PERM_CCCC);
        const auto by = [dim](int to) {
          return _mm512_broadcast_i32x4(
              _mm_setr_epi32((to - dim) & 31, (to - dim - 2) & 31, (to - dim - 4) & 31, (to - dim - 6) & 31));
        };
        level = join_top_bit(level, _mm512_rolv_epi32(even, by(2)), _mm512_rolv_epi32(odd, by(18)));
      }
      use(unit, shift, _mm512_permutexvar_epi16(level, table));
    }
  };
  decode(_mm512_unpacklo_epi16(a, b), 0);
  if constexpr (Unit::kUnits == 2) {
    if (second) decode(_mm512_unpackhi_epi16(a, b), 1);
  }
}

template <int kBits>
void decode_value_range(const AttentionArgs& a, int64_t begin, int64_t end, int64_t units, uint8_t* out) {
  using Unit = LevelUnit<kBits>;
  const __m512i table = code_table<kBits>(a.tiles->codes);
  for (int64_t key = begin; key < end; key += kStepTokens, out += units * Unit::kShifts * 64) {
    if (key % kSharedTokens == 0) prefetch_tile(a, a.v_blocks, key);
    const TilePlace at = place_of(a, a.v_blocks, key);
    const uint8_t* levels = at.tile + at.first * a.tiles->stride;
    for (int64_t unit = 0; unit < units; unit += Unit::kUnits)
      decode_values<kBits>(
          levels + unit * Unit::kBytes, a.tiles->stride, unit + 1 < units,
          table, [&](int u, int shift, __m512i words) __attribute__((always_inline)) {
            _mm512_store_si512(out + ((unit + u) * Unit::kShifts + shift) * 64, words);
          });
  }
}

// ~(p s) of a row by group, and the sum of p z.
inline void scale_weights(const uint8_t* weight, int64_t begin, int64_t end, int64_t groups, int64_t row,
                          LevelScratch& l) {
  const auto widen = [](__m256i words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  };
  for (int64_t g = 0; g < groups; ++g) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t j = begin; j < end; j += 32) {
      const __m512i words = _mm512_load_si512(weight + j * 2);
      const __m512 low = widen(_mm512_castsi512_si256(words)), high = widen(_mm512_extracti64x4_epi64(words, 1));
      sum = _mm512_fmadd_ps(low, _mm512_load_ps(l.value_zero[g] + j), sum);
      sum = _mm512_fmadd_ps(high, _mm512_load_ps(l.value_zero[g] + j + 16), sum);
      _mm512_store_si512(l.weight[row][g] + j * 2,
                         round_to_bf16(_mm512_mul_ps(low, _mm512_load_ps(l.value_scale[g] + j)),
                                       _mm512_mul_ps(high, _mm512_load_ps(l.value_scale[g] + j + 16))));
    }
    l.value_rest[row][g] = Simd::sum(sum);
  }
}

// Lane l: weights l and 4 + l of eight tokens.
inline __m512i spread_weights(const uint8_t* weight) {
  const __m512i order = _mm512_setr_epi32(0x40000, 0x40000, 0x40000, 0x40000, 0x50001, 0x50001, 0x50001, 0x50001,
                                          0x60002, 0x60002, 0x60002, 0x60002, 0x70003, 0x70003, 0x70003, 0x70003);
  const __m512i eight = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
  return _mm512_permutexvar_epi16(order, eight);
}

// The sums of the four lanes of each of four vectors, a lane each.
inline __m512 add_lanes(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
  const __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

inline void add_dims(float* acc, int64_t left, __m512 sum, float rest) {
  const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1);
  sum = _mm512_add_ps(sum, _mm512_set1_ps(rest));
  _mm512_mask_storeu_ps(acc, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, acc), sum));
}

// A unit's sums, [shift][4 lanes][words 0 to 3], onto `left` dims of acc or fewer.
template <int kBits>
inline void add_unit(const __m512* sum, float rest, float* acc, int64_t left) {
  const __m512 first = add_lanes(sum);
  if constexpr (kBits == 4) {  // words' dims 0 2 4 6 | 8 10 12 14 | 1 3 5 7 | 9 11 13 15
    const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    add_dims(acc, left, _mm512_permutexvar_ps(order, first), rest);
  } else {  // even dims, then odd ones
    const __m512 second = add_lanes(sum + 4);
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    add_dims(acc, left, _mm512_permutex2var_ps(first, low, second), rest);
    if (left > 16) add_dims(acc + 16, left - 16, _mm512_permutex2var_ps(first, high, second), rest);
  }
}

// kCount units of one row, decoded here: 16 sums at most. Weights are those of each unit's group.
template <int kBits, int kCount>
void value_row(const AttentionArgs& a, int64_t begin, int64_t end, int64_t unit, __m512i table, float* acc,
               LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  __m512 sum[kCount][Unit::kShifts];
#pragma GCC unroll 8
  for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
    for (int k = 0; k < Unit::kShifts; ++k) sum[u][k] = _mm512_setzero_ps();
  }
  const int64_t dims = value_dim_of(a);
  const uint8_t* weights[kCount];
  for (int u = 0; u < kCount; ++u) weights[u] = l.weight[0][(unit + u) * Unit::kDims / a.tiles->group];
  for (int64_t key = begin; key < end; key += kStepTokens) {
    __m512i w[kCount];
#pragma GCC unroll 8
    for (int u = 0; u < kCount; ++u) w[u] = spread_weights(weights[u] + key * 2);
    if (unit == 0 && key % kSharedTokens == 0) prefetch_tile(a, a.v_blocks, key);
    const TilePlace at = place_of(a, a.v_blocks, key);
    const uint8_t* levels = at.tile + at.first * a.tiles->stride + unit * Unit::kBytes;
#pragma GCC unroll 8
    for (int u = 0; u < kCount; u += Unit::kUnits)
      decode_values<kBits>(
          levels + u * Unit::kBytes, a.tiles->stride, u + 1 < kCount,
          table, [&](int which, int k, __m512i words) __attribute__((always_inline)) {
            sum[u + which][k] = multiply_add(sum[u + which][k], words, w[u + which]);
          });
  }
#pragma GCC unroll 8
  for (int u = 0; u < kCount; ++u) {
    const int64_t d = (unit + u) * Unit::kDims;
    add_unit<kBits>(sum[u], l.value_rest[0][d / a.tiles->group], acc + d, dims - d);
  }
}

// Adds the decoded values [begin, end) to the sums of kRows rows and kCount units: 16 at most.
template <int kBits, int kRows, int kCount>
void value_rows(int64_t group_dims, int64_t row, int64_t begin, int64_t end, int64_t unit, int64_t units,
                const uint8_t* decoded, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  __m512 sum[kRows][kCount][Unit::kShifts];
  const int64_t group = unit * Unit::kDims / group_dims;  // of all of them: a group is 32 dims or more
  float* sums = l.value_sum + (row * units + unit) * Unit::kShifts * 16;
  const auto each = [&](const auto& use) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
        for (int k = 0; k < Unit::kShifts; ++k) use(sum[r][u][k], sums + ((r * units + u) * Unit::kShifts + k) * 16);
      }
    }
  };
  each([](__m512 & one, const float* at) __attribute__((always_inline)) { one = _mm512_load_ps(at); });
  decoded += unit * Unit::kShifts * 64;
  for (int64_t key = begin; key < end; key += kStepTokens, decoded += units * Unit::kShifts * 64) {
    __m512i w[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) w[r] = spread_weights(l.weight[row + r][group] + key * 2);
#pragma GCC unroll 8
    for (int u = 0; u < kCount; ++u) {
#pragma GCC unroll 8
      for (int k = 0; k < Unit::kShifts; ++k) {
        const __m512i words = _mm512_load_si512(decoded + (u * Unit::kShifts + k) * 64);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][u][k] = multiply_add(sum[r][u][k], words, w[r]);
      }
    }
  }
  each([](__m512 & one, float* at) __attribute__((always_inline)) { _mm512_store_ps(at, one); });
}

// Adds the encoded values [begin, end), whole chunks, to the rows' acc. `decoded`: their words, from key `begin` on;
// null: they are decoded here.
template <int kBits>
void add_levels(const AttentionArgs& a, int64_t row, int64_t rows, int64_t begin, int64_t end, const uint8_t* decoded,
                const Bf16Scratch& s, LevelScratch& l) {
  using Unit = LevelUnit<kBits>;
  const int64_t dims = value_dim_of(a), groups = groups_of(*a.tiles, dims);
  const int64_t units = (dims + Unit::kDims - 1) / Unit::kDims, step_bytes = units * Unit::kShifts * 64;
  float* acc = a.acc + row * dims;
  for (int64_t r = 0; r < rows; ++r) scale_weights(s.weight + r * kWeightStride, begin, end, groups, r, l);
  if (rows == 1 && !decoded) {
    constexpr int kMost = 16 / Unit::kShifts;
    const __m512i table = code_table<kBits>(a.tiles->codes);
    int64_t unit = 0;
    for (; unit + kMost <= units; unit += kMost) value_row<kBits, kMost>(a, begin, end, unit, table, acc, l);
    if (kMost > 2 && unit + 2 <= units) value_row<kBits, 2>(a, begin, end, unit, table, acc, l), unit += 2;
    if (unit < units) value_row<kBits, 1>(a, begin, end, unit, table, acc, l);
    return;
  }
  std::memset(l.value_sum, 0, static_cast<size_t>(rows * step_bytes));
  for (int64_t strip = begin; strip < end; strip += kValueStrip) {
    const int64_t stop = strip + kValueStrip < end ? strip + kValueStrip : end;
    const uint8_t* words = decoded ? decoded + (strip - begin) / kStepTokens * step_bytes : l.values;
    if (!decoded) decode_value_range<kBits>(a, strip, stop, units, l.values);
    constexpr int kPart = 8 / Unit::kShifts;  // units of two rows: 16 sums
    for (int64_t r = 0; r < rows; r += 2) {
      const auto add = [&]<int n>(int64_t unit) {
        if (r + 1 < rows)
          value_rows<kBits, 2, n>(a.tiles->group, r, strip, stop, unit, units, words, l);
        else
          value_rows<kBits, 1, n>(a.tiles->group, r, strip, stop, unit, units, words, l);
      };
      int64_t unit = 0;
      for (; unit + kPart <= units; unit += kPart) add.template operator()<kPart>(unit);
      if (unit < units) add.template operator()<1>(unit);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t unit = 0; unit < units; ++unit) {
      const int64_t d = unit * Unit::kDims;
      __m512 sum[Unit::kShifts];
      for (int k = 0; k < Unit::kShifts; ++k)
        sum[k] = _mm512_load_ps(l.value_sum + ((r * units + unit) * Unit::kShifts + k) * 16);
      add_unit<kBits>(sum, l.value_rest[r][d / a.tiles->group], acc + r * dims + d, dims - d);
    }
  }
}

}  // namespace
}  // namespace millrace
