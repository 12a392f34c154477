// Everything but matmul and attention for NEON. The shared sources are compiled with the vector type included first.
// clang-format off
#include "kernels/arm/simd_neon.h"
#include "kernels/vector/no_level_tables.h"
#include "kernels/vector/simd_math.h"
#include "kernels/vector/row_decode.h"
#include "kernels/vector/activation_functions_kernel.h"
#include "kernels/vector/affine_levels.h"
#include "kernels/vector/affine_rows_kernel.h"
#include "kernels/vector/elementwise_kernel.h"
#include "kernels/vector/exp_sum_kernel.h"
#include "kernels/vector/norm_kernel.h"
#include "kernels/vector/rope_kernel.h"
#include "kernels/vector/rotate_rows_kernel.h"
#include "kernels/vector/row_codec_kernel.h"
#include "kernels/vector/selective_scan_kernel.h"
#include "kernels/vector/softmax_kernel.h"
// clang-format on

namespace millrace {

void add_ops_neon(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.rope = rope;
  table.rotate_rows = rotate_rows;
  table.softmax = softmax;
  table.exp_sum = exp_sum;
  table.exp_sum_coarse = exp_sum_coarse;
  table.silu_mul = gated<Silu>;
  table.gelu_tanh_mul = gated<GeluTanh>;
  table.gelu_erf_mul = gated<GeluErf>;
  table.gelu_tanh = in_place<GeluTanh>;
  table.gelu_erf = in_place<GeluErf>;
  table.relu = in_place<Relu>;
  table.softcap = softcap;
  table.add = add;
  table.add_scaled = add_scaled;
  table.scale = scale;
  table.causal_conv = causal_conv;
  table.selective_scan = selective_scan;
  table.decode_affine = decode_affine;
  add_row_codecs(table);
}

}  // namespace millrace
