// Sums of bf16 products in f32 lanes, with one of two instructions that give the same bits. vdpbf16ps adds a pair of
// products at once. FMAs add one product each, with factors that are widened to f32. Products of bf16 are exact in f32,
// so FMAs round as vdpbf16ps does if they also add the odd product of a pair before the even one and treat subnormal
// numbers as zero. The processor determines which is faster (bf16_products.h).
//
// Vectors of keys and values hold a pair in every lane (attention_bf16_tiles.h). The other factor is a row of queries
// or of weights, in order.
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

inline __m512i broadcast_word(const uint8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

struct DotProducts {
  using Vector = __m512i;
  using Row = uint8_t;  // bf16, two bytes each
  using Factor = __m512i;
  static Vector of_words(__m512i words) { return words; }
  static Factor factor(const Row* row, int64_t pair) { return broadcast_word(row + pair * 4); }
  static __m512 add(__m512 sum, Vector v, Factor f) { return multiply_add(sum, v, f); }
};

struct FmaProducts {
  struct Vector {
    __m512 even, odd;
  };
  using Row = float;
  struct Factor {
    __m512 even, odd;
  };
  static Vector of_words(__m512i words) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000))))};
  }
  static Factor factor(const Row* row, int64_t pair) {
    return {_mm512_set1_ps(row[2 * pair]), _mm512_set1_ps(row[2 * pair + 1])};
  }
  static __m512 add(__m512 sum, const Vector& v, const Factor& f) {
    return _mm512_fmadd_ps(v.even, f.even, _mm512_fmadd_ps(v.odd, f.odd, sum));
  }
};

// Converts columns [begin, end) of rows from bf16 to f32; both are multiples of 16. word_stride: in bytes. out_stride:
// in floats.
inline void widen_rows(const uint8_t* words, int64_t word_stride, int64_t rows, int64_t begin, int64_t end, float* out,
                       int64_t out_stride) {
  for (int64_t r = 0; r < rows; ++r, words += word_stride, out += out_stride) {
    for (int64_t i = begin; i < end; i += 16) {
      const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i * 2)));
      _mm512_storeu_ps(out + i, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
    }
  }
}

// During the lifetime of this object, FMAs of this thread treat subnormal numbers as zero.
class SubnormalsAsZero {
 public:
  SubnormalsAsZero() { _mm_setcsr(before_ | 0x8040); }  // flush to zero, denormals are zero
  ~SubnormalsAsZero() { _mm_setcsr(before_); }
  SubnormalsAsZero(const SubnormalsAsZero&) = delete;
  SubnormalsAsZero& operator=(const SubnormalsAsZero&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};

}  // namespace
}  // namespace millrace
