// Quantized matmul for AVX2 with AVX-VNNI-INT8. In assembly: GCC knows the instruction from version 13 on, the
// assembler (binutils 2.40) before. The arithmetic is tested with the instruction replaced, which has never run
// (tests/conformance).
#if defined(__x86_64__) && defined(MILLRACE_VNNI_INT8)
#include "kernels/families.h"
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_vnniint8_avx2.h"

namespace millrace {
namespace {

struct SignedDots {
  static __m256i add(__m256i sum, __m256i w, __m256i x) {
    asm("vpdpbssd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
    return sum;
  }
};

}  // namespace

void add_matmul_quant_avxvnniint8(KernelTable& table) { add_signed_kernels<VectorVnniInt8<SignedDots>>(table); }

}  // namespace millrace
#endif
