// The encoder of the K formats that have a scale and a minimum for each sub-block (Q2_K, Q4_K, Q5_K), without packing.
// Each sub-block has a separate affine fit. Scales and minima are rounded to multiples of d and dmin, and then the
// values are rounded with these rounded scales. Pure function.
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

// `x`: 256 values. `sub_blocks`: number of sub-blocks. q is in 0 .. levels; scales and minima are in 0 .. scale_levels.
// `weights`: as in scale_fit.h.
KAffineBlock fit_k_affine(const float* x, int sub_blocks, int levels, int scale_levels, const float* weights);

}  // namespace millrace
