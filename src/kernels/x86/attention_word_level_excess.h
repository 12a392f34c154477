// Adds values that are stored in addition to levels: outliers, and the rows of a stream's first tokens
// (attention_word_levels.h). Include after attention_word_level_units.h.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Computes the terms that outliers add to the levels of values [begin, end). A term is zero if an earlier outlier of
// the token has the same place, or if the whole row is stored separately.
template <int kBits>
void find_excess(const AttentionArgs& a, int64_t begin, int64_t end, WordScratch& b) {
  using Unit = WordUnit<kBits>;
  const LevelTiles& t = *a.tiles;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i rows = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(t.stride)));
  const __m512 codes = Simd::load(value_codes_of(t));
  for (int64_t key = begin; key < end; key += 16) {
    const TilePlace at = b.value_at[key / kSharedTokens];
    const int64_t token = at.first + key % kSharedTokens, sinks = t.sink_tokens - a.key_begin - key;
    const auto apart = static_cast<__mmask16>(sinks <= 0 ? 0xffff : sinks >= 16 ? 0 : 0xffff << sinks);
    const uint8_t* levels = at.tile + token * t.stride;
    const __m512 scale = Simd::load_f16(at.tile + t.scales_at + 2 * token);
    const __m512 zero = Simd::load_f16(at.tile + t.zeros_at + 2 * token);
    for (int64_t o = 0; o < t.outliers; ++o) {
      const uint8_t* outliers = at.tile + t.outliers_at + 4 * (token * t.outliers + o);
      const __m512i index = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(t.outliers)));
      const __m512i pairs = t.outliers == 1 ? _mm512_loadu_si512(outliers) : _mm512_i32gather_epi32(index, outliers, 4);
      const __m512i last = _mm512_set1_epi32(static_cast<int>(a.head_dim - 1));  // a file may hold the tile
      const __m512i place = _mm512_min_epu32(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)), last);
      const __m512 value = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
      const __m512i unit = _mm512_srli_epi32(place, kBits == 4 ? 4 : 5);
      const __m512i unit_at = _mm512_add_epi32(rows, _mm512_mullo_epi32(unit, _mm512_set1_epi32(Unit::kBytes)));
      const __m512i within = _mm512_and_si512(place, _mm512_set1_epi32(Unit::kDims - 1));
      const __m512i byte = _mm512_and_si512(place, _mm512_set1_epi32(7));
      const __m512i shift = _mm512_mullo_epi32(_mm512_srli_epi32(within, 3), _mm512_set1_epi32(Unit::kStep));
      const __m512i low = _mm512_i32gather_epi32(_mm512_add_epi32(unit_at, byte), levels, 1);
      __m512i level = _mm512_and_si512(_mm512_srlv_epi32(low, shift), _mm512_set1_epi32((1 << Unit::kStep) - 1));
      if constexpr (kBits == 3) {
        const __m512i tops = _mm512_i32gather_epi32(unit_at, levels + 8, 1);
        const __m512i top = _mm512_and_si512(_mm512_srlv_epi32(tops, within), _mm512_set1_epi32(1));
        level = _mm512_add_epi32(level, _mm512_slli_epi32(top, 2));
      }
      __mmask16 counts = apart;
      for (int64_t before = 0; before < o; ++before)
        counts &= _mm512_cmpneq_epi32_mask(place, _mm512_load_si512(b.excess_dim[before] + key));
      const __m512 said = Simd::fma(_mm512_permutexvar_ps(level, codes), scale, zero);
      _mm512_store_si512(b.excess_dim[o] + key, place);
      _mm512_store_ps(b.excess[o] + key, _mm512_maskz_sub_ps(counts, value, said));
    }
  }
}

// Adds the terms for one row. Even and odd tokens have separate sums, because outliers of many tokens may be in the
// same dim. Many rows use the same order of sums.
inline void add_excess_of_row(const AttentionArgs& a, const uint8_t* weight, int64_t begin, int64_t end, WordScratch& b,
                              float* acc) {
  float *even = b.excess_sum[0][0], *odd = b.excess_sum[1][0], *weights = b.token_weight[0];
  for (int64_t d = 0; d < a.head_dim; d += 16) {
    _mm512_store_ps(even + d, _mm512_setzero_ps());
    _mm512_store_ps(odd + d, _mm512_setzero_ps());
  }
  for (int64_t j = begin; j < end; j += 16) _mm512_store_ps(weights + j, Simd::load_bf16(weight + 2 * j));
  for (int64_t o = 0; o < a.tiles->outliers; ++o) {
    const int32_t* dims = b.excess_dim[o];
    const float* excess = b.excess[o];
    for (int64_t j = begin; j < end; j += 2) {
      even[dims[j]] = __builtin_fmaf(weights[j], excess[j], even[dims[j]]);
      odd[dims[j + 1]] = __builtin_fmaf(weights[j + 1], excess[j + 1], odd[dims[j + 1]]);
    }
  }
  for (int64_t d = 0; d < a.head_dim; d += 16) {
    const __m512 sum = Simd::add(_mm512_load_ps(even + d), _mm512_load_ps(odd + d));
    Simd::store(acc + d, Simd::add(Simd::load(acc + d), sum));
  }
}

// Writes the rows' weights as [token][row].
inline void transpose_weights(int64_t rows, int64_t begin, int64_t end, const Bf16Scratch& s, WordScratch& b) {
  const uint8_t* weight[16];
  for (int64_t r = 0; r < 16; ++r) weight[r] = r < rows ? s.weight + r * kWeightStride : kZeroRow;
  for (int64_t j = begin; j < end; j += 8) {
    __m512 pairs[4];
    Simd::transpose_words(weight, 2 * j, pairs);
    for (int64_t i = 0; i < 4; ++i) {
      _mm512_store_ps(b.token_weight[j + 2 * i], Simd::bf16_part(pairs[i], 0));
      _mm512_store_ps(b.token_weight[j + 2 * i + 1], Simd::bf16_part(pairs[i], 1));
    }
  }
}

// Adds the terms for up to 16 rows, one in each lane.
inline void add_excess_of_rows(const AttentionArgs& a, int64_t rows, int64_t begin, int64_t end, const Bf16Scratch& s,
                               WordScratch& b, float* acc) {
  transpose_weights(rows, begin, end, s, b);
  for (int64_t d = 0; d < a.head_dim; ++d) {
    _mm512_store_ps(b.excess_sum[0][d], _mm512_setzero_ps());
    _mm512_store_ps(b.excess_sum[1][d], _mm512_setzero_ps());
  }
  for (int64_t o = 0; o < a.tiles->outliers; ++o) {
    const int32_t* dims = b.excess_dim[o];
    const float* excess = b.excess[o];
    const auto add = [&](int64_t j, float* sum) {
      const __m512 weights = _mm512_load_ps(b.token_weight[j]);
      _mm512_store_ps(sum, Simd::fma(weights, _mm512_set1_ps(excess[j]), _mm512_load_ps(sum)));
    };
    for (int64_t j = begin; j < end; j += 2) {
      add(j, b.excess_sum[0][dims[j]]);
      add(j + 1, b.excess_sum[1][dims[j + 1]]);
    }
  }
  for (int64_t d = 0; d < a.head_dim; d += 16) {
    const uint8_t* dims[16];
    for (int64_t i = 0; i < 16; ++i) {
      float* sum = b.excess_sum[0][d + i];
      _mm512_store_ps(sum, Simd::add(_mm512_load_ps(sum), _mm512_load_ps(b.excess_sum[1][d + i])));
      dims[i] = reinterpret_cast<const uint8_t*>(sum);
    }
    for (int64_t r = 0; r < rows; r += 4) {
      __m512 of_row[4];
      Simd::transpose_words(dims, r * static_cast<int64_t>(sizeof(float)), of_row);
      for (int64_t i = 0; i < 4 && r + i < rows; ++i) {
        float* out = acc + (r + i) * a.head_dim + d;
        Simd::store(out, Simd::add(Simd::load(out), of_row[i]));
      }
    }
  }
}

// Adds the values of a stream's first tokens, which are rows of f16.
inline void add_sinks(const AttentionArgs& a, int64_t rows, int64_t begin, int64_t end, const Bf16Scratch& s,
                      float* acc) {
  const int64_t sinks = a.tiles->sink_tokens - a.key_begin;  // number of such first tokens in the partition
  for (int64_t key = begin; key < sinks && key < end; ++key) {
    const uint8_t* v = a.v_blocks[0] + a.tiles->sink_at + 2 * key * a.head_dim;
    for (int64_t r = 0; r < rows; ++r) {
      uint16_t word;
      std::memcpy(&word, s.weight + r * kWeightStride + 2 * key, sizeof word);
      const __m512 weight = _mm512_castsi512_ps(_mm512_set1_epi32(word << 16));
      float* out = acc + r * a.head_dim;
      for (int64_t d = 0; d < a.head_dim; d += 16)
        Simd::store(out + d, Simd::fma(weight, Simd::load_f16(v + 2 * d), Simd::load(out + d)));
    }
  }
}

// Adds all these values to the rows' acc. Called after find_excess().
inline void add_value_excess(const AttentionArgs& a, int64_t rows, int64_t begin, int64_t end, const Bf16Scratch& s,
                             WordScratch& b, float* acc) {
  if (a.tiles->sink_tokens > a.key_begin) add_sinks(a, rows, begin, end, s, acc);
  if (a.tiles->outliers == 0) return;
  if (rows == 1) return add_excess_of_row(a, s.weight, begin, end, b, acc);
  add_excess_of_rows(a, rows, begin, end, s, b, acc);
}

}  // namespace
}  // namespace millrace
