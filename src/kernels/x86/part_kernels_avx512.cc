// Kernels of weights with parts for AVX-512. The shared sources are compiled with the vector types included first.
#if defined(__x86_64__)
// clang-format off
#include "kernels/x86/simd_avx512.h"
#include "kernels/x86/part_simd_avx512.h"
#include "kernels/vector/hadamard_kernel.h"
#include "kernels/vector/input_rounding_kernel.h"
#include "kernels/vector/sparse_kernel.h"
// clang-format on

namespace millrace {

PartKernels part_kernels_avx512() {
  return {round_group, encode_group, shift_scale, hadamard, mix_blocks, turn_tokens, add_sparse};
}

}  // namespace millrace
#endif
