// Decodes levels with scales and zeros (AffineRows) by table look-up, 32 columns at a time, for AVX-512. Include after
// affine_rows_kernel.h. A group has at most 2^bits different values. They are computed once, with the same arithmetic,
// and a permutation of words looks them up. If each column has its own scale, each lane has a table; for 2 and 3 bits,
// masks select from four or eight registers.
#pragma once

namespace millrace {
namespace {

constexpr int64_t kWide = 32;  // number of columns at a time

// Returns words whose lowest bits are the levels of 32 columns; the bits above belong to other columns.
template <int kBits>
inline __m512i level_words(const uint8_t* levels) {
  const __m128i bytes = kBits == 2 ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(levels))
                                   : _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  // Each unit of 8 bytes is repeated, once for each level of a byte.
  const __m256i units =
      kBits == 2 ? _mm256_broadcastq_epi64(bytes) : _mm256_permute4x64_epi64(_mm256_castsi128_si256(bytes), 0x50);
  constexpr int64_t kEach = 0x0001000100010001;
  const __m512i shifts = kBits == 2
                             ? _mm512_setr_epi64(0, 0, 2 * kEach, 2 * kEach, 4 * kEach, 4 * kEach, 6 * kEach, 6 * kEach)
                             : _mm512_setr_epi64(0, 0, 4 * kEach, 4 * kEach, 0, 0, 4 * kEach, 4 * kEach);
  return _mm512_srlv_epi16(_mm512_cvtepu8_epi16(units), shifts);
}

// With 3 bits, a unit has the lower two bits of its levels, then the third bits.
template <>
inline __m512i level_words<3>(const uint8_t* levels) {
  uint32_t high;
  std::memcpy(&high, levels + 8, sizeof(high));
  const __m512i low = _mm512_and_si512(level_words<2>(levels), _mm512_set1_epi16(3));
  return _mm512_mask_add_epi16(low, high, low, _mm512_set1_epi16(4));
}

inline void store_words(uint8_t* out, __m512i words) { _mm512_storeu_si512(out, words); }

inline __m256i halves_of(__m512 values) {
  return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Returns the values of all levels, repeated: their codes, or 0, 1 ...
template <int kBits>
inline __m512 all_levels(const float* codes = nullptr) {
  const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i levels = _mm512_and_si512(places, _mm512_set1_epi32((1 << kBits) - 1));
  return codes ? _mm512_permutexvar_ps(levels, _mm512_loadu_ps(codes)) : _mm512_cvtepi32_ps(levels);
}

inline __m512 broadcast_f16(const uint8_t* half) {
  int16_t bits;
  std::memcpy(&bits, half, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(bits));
}

// Decodes groups of at least 32 columns.
template <int kBits>
void look_up_groups(const AffineRows& a) {
  const int64_t groups = (a.cols + a.group - 1) / a.group;
  const __m512 levels = all_levels<kBits>(a.codes);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = 2 * (r * groups + g);
      const __m512 values = _mm512_fmadd_ps(levels, broadcast_f16(a.scales + at), broadcast_f16(a.zeros + at));
      const __m512i table = _mm512_broadcast_i64x4(halves_of(values));
      const int64_t end = (g + 1) * a.group < a.cols ? (g + 1) * a.group : a.cols;
      for (int64_t c = g * a.group; c < end; c += kWide) {
        const __m512i words = level_words<kBits>(a.levels + r * a.stride + c * kBits / 8);
        store_words(a.out + 2 * (r * a.cols + c), _mm512_permutexvar_epi16(words, table));
      }
    }
  }
}

// Decodes groups of 32 columns with 2 bits, with the tables of four groups at a time. Groups are adjacent, even those
// of different rows.
inline void look_up_fours(const AffineRows& a) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const int64_t groups = a.rows * (a.cols / kWide);
  for (int64_t g = 0; g < groups; g += 4) {
    const __m128i scales = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a.scales + 2 * g));
    const __m128i zeros = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(a.zeros + 2 * g));
    const __m512 scale = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_cvtph_ps(scales)));
    const __m512 zero = _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_cvtph_ps(zeros)));
    const __m512i tables = _mm512_castsi256_si512(halves_of(_mm512_fmadd_ps(all_levels<2>(), scale, zero)));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i table = _mm512_permutexvar_epi64(_mm512_set1_epi64(i), tables);
      store_words(a.out + 2 * kWide * (g + i), _mm512_permutexvar_epi16(level_words<2>(a.levels + 8 * (g + i)), table));
    }
  }
}

// Decodes columns with separate scales. Each bit of a level halves the number of registers that may hold its value.
template <int kBits>
void choose_columns(const AffineRows& a) {
  constexpr int kCount = 1 << kBits;
  for (int64_t c = 0; c < a.cols; c += kWide) {
    __m512i value[kCount];
    for (int level = 0; level < kCount; ++level) {
      const __m512 x = _mm512_set1_ps(a.codes ? a.codes[level] : static_cast<float>(level));
      __m256i half[2];
      for (int i = 0; i < 2; ++i) {
        const int64_t at = 2 * (c + 16 * i);
        half[i] = halves_of(_mm512_fmadd_ps(x, Simd::load_f16(a.scales + at), Simd::load_f16(a.zeros + at)));
      }
      value[level] = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
    }
    const uint8_t* levels = a.levels + c / kWide * affine_unit_bytes(kBits);
    uint8_t* out = a.out + 2 * c;
    for (int64_t r = 0; r < a.rows; ++r, levels += a.stride, out += 2 * a.cols) {
      const __m512i words = level_words<kBits>(levels);
      __m512i left[kCount];
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) left[i] = value[i];
#pragma GCC unroll 3
      for (int bit = 0; bit < kBits; ++bit) {
        const __mmask32 set = _mm512_test_epi16_mask(words, _mm512_set1_epi16(static_cast<int16_t>(1 << bit)));
#pragma GCC unroll 4
        for (int i = 0; i < kCount >> (bit + 1); ++i)
          left[i] = _mm512_mask_blend_epi16(set, left[2 * i], left[2 * i + 1]);
      }
      store_words(out, left[0]);
    }
  }
}

inline void decode_affine_wide(const AffineRows& a) noexcept {
  const bool columns = a.group == 0;
  if (a.cols % kWide != 0 || a.group % kWide != 0 || (columns && a.bits == 4)) return decode_affine(a);
  if (columns) return a.bits == 2 ? choose_columns<2>(a) : choose_columns<3>(a);
  if (a.bits == 4) return look_up_groups<4>(a);
  if (a.bits == 3) return look_up_groups<3>(a);
  if (!a.codes && a.group == kWide && a.rows * (a.cols / kWide) % 4 == 0) return look_up_fours(a);
  look_up_groups<2>(a);
}

}  // namespace
}  // namespace millrace
