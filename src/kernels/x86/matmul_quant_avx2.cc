// Quantized matmul for AVX2: 8 rows per vector, 16 rows and 3 or 4 tokens together (their sums in registers, the levels
// in L1 or in place, each loaded for all tokens). Products of bytes are exact: vpmaddubsw sums two of them in 16 bits,
// and as many results are added in 16 bits as the largest level allows before widening. Formats with levels above 127
// stay signed and multiply |level| with the sign-adjusted activation: at most 2 * 128 * 127.
#if defined(__x86_64__)
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vector_avx2.h"

namespace millrace {
namespace {

struct VectorAvx2 : Avx2Operations {
  template <typename Kind>
  static constexpr int kTileTokens = Kind::kSigned ? 4 : 3;
  static constexpr bool kPrefersSigned = true;
  static constexpr int64_t kPrefetchOne8 =
      8192;  // distance for one token of 8-bit levels; with 3 KB, one core is 7 % slower, two cores the same

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
        repeat<T>([&](int t) __attribute__((always_inline)) {
          I quad = broadcast32(row[t] + 4 * j);
          repeat<R>([&](int r) __attribute__((always_inline)) {
            I product = _mm256_maddubs_epi16(group.part[r].w[j], quad);
            words[t][r] = i == 0 ? product : _mm256_add_epi16(words[t][r], product);
            asm("" : "+x"(words[t][r]));  // otherwise the sums become a tree, with all products live (and spilled)
          });
        });
      });
      repeat<T>([&](int t) __attribute__((always_inline)) {
        repeat<R>([&](int r) __attribute__((always_inline)) {
          sum[t][r] = _mm256_add_epi32(sum[t][r], _mm256_madd_epi16(words[t][r], ones));
        });
      });
    });
  }

  template <int kFirst, int kCount, typename Group, int R, int T>
  [[gnu::always_inline]] static void dot_signed(const Group& group, const uint8_t* const (&row)[T], I (&sum)[T][R]) {
    const I ones = set1_16(1);
    steps<Group::kSpreads, kCount>([&](auto j) __attribute__((always_inline)) {
      I w[R], magnitude[R];
      steps<Group::kSpreads, R>([&](auto r) __attribute__((always_inline)) {
        w[r] = group.template level<kFirst>(j, r);
        if constexpr (Group::kDirect) w[r] = kept(w[r]);  // otherwise loaded from L1 for every product
        magnitude[r] = kept(group.magnitude(kFirst + j, r, w[r]));
      });
      repeat<T>([&](int t) __attribute__((always_inline)) {
        I quad = broadcast32(row[t] + 4 * (kFirst + j));
        repeat<R>([&](int r) __attribute__((always_inline)) {
          I words = _mm256_maddubs_epi16(magnitude[r], _mm256_sign_epi8(quad, w[r]));
          sum[t][r] = kept(_mm256_add_epi32(sum[t][r], _mm256_madd_epi16(words, ones)));
        });
      });
    });
  }
};

}  // namespace

void add_matmul_quant_avx2(KernelTable& table) {
  add_quant_kernels<VectorAvx2>(table);
  set_table16(table, run_table16<VectorAvx2>);
  set_codewords(table, run_codewords<VectorAvx2>);
}

}  // namespace millrace
#endif
