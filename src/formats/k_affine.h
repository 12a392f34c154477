// The encoder of the K formats with a scale and a minimum per sub-block (Q2_K, Q4_K, Q5_K), up to packing: each
// sub-block has its own affine fit, the fits are rounded to multiples of d and dmin, and the values are rounded with
// the scales as they will be decoded. Pure function.
#pragma once

#include <cstdint>

#include "formats/scale_fit.h"

namespace millrace {

// value = d * scale[b] * q - dmin * minimum[b]
struct KAffineBlock {
  uint16_t d = 0;  // f16 bits
  uint16_t dmin = 0;
  uint8_t scale[16] = {};
  uint8_t minimum[16] = {};
  uint8_t q[256];
};

// `weights` as in scale_fit.h. Sub-blocks of 256 / sub_blocks values; q in 0 .. levels, scales and minima in 0 ..
// scale_levels.
KAffineBlock fit_k_affine(const float* x, int sub_blocks, int levels, int scale_levels, const float* weights);

}  // namespace millrace
