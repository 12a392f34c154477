// Quantized matmul for AVX2: 8 rows per vector, 16 rows and 3 or 4 tokens together (their sums in registers, the levels
// in L1 or in place, each loaded for all tokens). Products of bytes are exact: vpmaddubsw sums two of them in 16 bits,
// and as many results are added in 16 bits as the largest level allows before widening. Formats with levels above 127
// stay signed and multiply |level| with the sign-adjusted activation: at most 2 * 128 * 127.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/families.h"
#include "kernels/x86/matmul_quant.h"

namespace millrace {
namespace {

struct VectorAvx2 {
  using I = __m256i;
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;  // vectors of rows processed together
  template <typename Kind>
  static constexpr int kTileTokens = Kind::kSigned ? 4 : 3;
  static constexpr bool kPrefersSigned = true;
  static constexpr int64_t kPrefetchOne8 =
      8192;  // distance for one token of 8-bit levels; with 3 KB, one core is 7 % slower, two cores the same

  static I abs8(I v) { return _mm256_abs_epi8(v); }
  // Forces the value into a register.
  static I kept(I v) {
    asm("" : "+x"(v));
    return v;
  }
  static I load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static I zero() { return _mm256_setzero_si256(); }
  static F zero_f() { return _mm256_setzero_ps(); }
  static I set1_8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static I set1_16(int v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  static I set1_32(int v) { return _mm256_set1_epi32(v); }
  static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  static I bit_xor(I a, I b) { return _mm256_xor_si256(a, b); }
  static I or_and(I a, I b, I mask) { return _mm256_or_si256(a, _mm256_and_si256(b, mask)); }
  template <int kBits>
  static I shift_right(I v) {  // by a negative count: left
    if constexpr (kBits > 0) return _mm256_srli_epi16(v, kBits);
    if constexpr (kBits < 0) return _mm256_slli_epi16(v, -kBits);
    return v;
  }
  static I shift_left_by(I v, I counts) { return _mm256_sllv_epi32(v, counts); }
  template <int kBits>
  static I shift_left32(I v) {
    return _mm256_slli_epi32(v, kBits);
  }
  static I broadcast16(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I look_up(I table, I codes) { return _mm256_shuffle_epi8(table, codes); }
  static I add32(I a, I b) { return _mm256_add_epi32(a, b); }
  static I pairs(I low, I high) { return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa); }
  static I load_i8(const uint8_t* p) { return _mm256_cvtepi8_epi32(quarter_load(p)); }
  static I load_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(quarter_load(p)); }
  static F load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F load_e8m0(const uint8_t* p) {  // see e8m0_half_to_f32
    I e = load_u8(p);
    I normal = _mm256_slli_epi32(_mm256_sub_epi32(e, set1_32(1)), 23);
    I small = _mm256_sllv_epi32(set1_32(0x00200000), e);
    I bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(set1_32(2), e));
    bits = _mm256_blendv_epi8(bits, set1_32(0x7fc00000), _mm256_cmpeq_epi32(e, set1_32(255)));
    return _mm256_castsi256_ps(bits);
  }
  static F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F negated_fma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F broadcast_f32(const uint8_t* p) { return _mm256_set1_ps(*reinterpret_cast<const float*>(p)); }
  static I broadcast32(const void* p) { return _mm256_set1_epi32(*static_cast<const int*>(p)); }
  static I dot_pairs(I a, I b) { return _mm256_madd_epi16(a, b); }

  // Number of vpmaddubsw results that can be added in 16 bits.
  template <typename Kind>
  static constexpr int safe_sums() {
    int sums = 32767 / (2 * 127 * Kind::kLargest);
    return sums >= 8 ? 8 : sums >= 4 ? 4 : sums >= 2 ? 2 : 1;
  }

  // sum[t][r] += levels W[kFirst .. kFirst + kCount) of part r times token t.
  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    if constexpr (Kind::kSigned) {
      dot_signed<kFirst, kCount>(group, row, sum);
    } else {
      dot_unsigned<Kind, kFirst, kCount>(group, row, sum);
    }
  }

  template <typename Kind, int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot_unsigned(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    static_assert(!Group::kDirect);
    constexpr int kSums = safe_sums<Kind>() < kCount ? safe_sums<Kind>() : kCount;
    const I ones = set1_16(1);
    unroll<kCount / kSums>([&](auto run) __attribute__((always_inline)) {
      I words[T][R];
      unroll<kSums>([&](auto i) __attribute__((always_inline)) {
        constexpr int j = kFirst + run * kSums + i;
        unroll<T>([&](auto t) __attribute__((always_inline)) {
          I quad = broadcast32(row[t] + 4 * j);
          unroll<R>([&](auto r) __attribute__((always_inline)) {
            I product = _mm256_maddubs_epi16(group.part[r].w[j], quad);
            words[t][r] = i == 0 ? product : _mm256_add_epi16(words[t][r], product);
            asm("" : "+x"(words[t][r]));  // otherwise the sums become a tree, with all products live (and spilled)
          });
        });
      });
      unroll<T>([&](auto t) __attribute__((always_inline)) {
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          sum[t][r] = _mm256_add_epi32(sum[t][r], _mm256_madd_epi16(words[t][r], ones));
        });
      });
    });
  }

  template <int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot_signed(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    const I ones = set1_16(1);
    unroll<kCount>([&](auto i) __attribute__((always_inline)) {
      constexpr int j = kFirst + i;
      I w[R], magnitude[R];
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        w[r] = group.template level<j, r>();
        if constexpr (Group::kDirect) w[r] = kept(w[r]);  // otherwise loaded from L1 for every product
        magnitude[r] = kept(group.template magnitude<j, r>(w[r]));
      });
      unroll<T>([&](auto t) __attribute__((always_inline)) {
        I quad = broadcast32(row[t] + 4 * j);
        unroll<R>([&](auto r) __attribute__((always_inline)) {
          I words = _mm256_maddubs_epi16(magnitude[r], _mm256_sign_epi8(quad, w[r]));
          sum[t][r] = kept(_mm256_add_epi32(sum[t][r], _mm256_madd_epi16(words, ones)));
        });
      });
    });
  }

  static void store_past(float* y, F v) { _mm256_stream_ps(y, v); }  // streaming store; unordered until fence()
  static void fence() { _mm_sfence(); }
  static void store(float* y, F v, int64_t count) {
    if (count >= kLanes) {
      _mm256_storeu_ps(y, v);
    } else {
      _mm256_maskstore_ps(y, first_lanes(count), v);
    }
  }

 private:
  static I first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(set1_32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i quarter_load(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
};

}  // namespace

void add_matmul_quant_avx2(KernelTable& table) { add_quant_kernels<VectorAvx2>(table); }

}  // namespace millrace
#endif
