// The 256-bit products with VNNI in the encoding of AVX-512 VL, which more machines have than AVX-VNNI: the arithmetic
// of matmul_quant_avxvnni.cc where that cannot run.
#if defined(__x86_64__)
#include "conformance/vnni256.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vnniint8_avx2.h"

namespace millrace::testing {
namespace {

// vpdpbssd by products of words: the even bytes of each four, then the odd ones.
struct EmulatedSignedDots {
  static __m256i add(__m256i sum, __m256i w, __m256i x) {
    const auto even = [](__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); };
    const auto odd = [](__m256i v) { return _mm256_srai_epi16(v, 8); };
    return _mm256_add_epi32(sum,
                            _mm256_add_epi32(_mm256_madd_epi16(even(w), even(x)), _mm256_madd_epi16(odd(w), odd(x))));
  }
};

}  // namespace

void add_vnni256(KernelTable& table) {
  add_quant_kernels<VectorVnni256>(table);
  set_table16(table, run_table16<VectorVnni256>);
  set_codewords(table, run_codewords<VectorVnni256>);
}

void add_vnni256_int8(KernelTable& table) { add_signed_kernels<VectorVnniInt8<EmulatedSignedDots>>(table); }

}  // namespace millrace::testing
#endif
