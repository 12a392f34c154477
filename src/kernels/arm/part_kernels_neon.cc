// Kernels of weights with parts for NEON. The shared sources are compiled with the vector types included first.
// clang-format off
#include "kernels/arm/simd_neon.h"
#include "kernels/arm/part_simd_neon.h"
#include "kernels/vector/hadamard_kernel.h"
#include "kernels/vector/input_rounding_kernel.h"
#include "kernels/vector/sparse_kernel.h"
// clang-format on

namespace millrace {

PartKernels part_kernels_neon() {
  return {round_group, encode_group, shift_scale, hadamard, mix_blocks, turn_tokens, add_sparse};
}

}  // namespace millrace
