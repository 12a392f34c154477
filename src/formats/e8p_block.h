// Blocks of E8P (e8p.cc), for kernels and for quantizers that choose the points themselves. Pure functions.
#pragma once

#include "formats/block.h"
#include "formats/e8p_codebook.h"

namespace millrace {

inline constexpr int kE8pBlockValues = 256;
inline constexpr int kE8pPoints = kE8pBlockValues / kE8pValues;
inline constexpr int kE8pBlockBytes = 2 + 2 * kE8pPoints;
// Type id in GGUF files. ggml has no id for this layout. The upper half is "MR", which ggml will never assign.
inline constexpr int kGgufE8p = 0x4d520001;

// Values of the 4-bit codes to which a block is unpacked, in quarters. Bits 0 and 1 of a code are the digit of the
// magnitude, bit 2 is its sign, and bit 3 is set if 1/4 is subtracted. The eight values of a point have the same bit 3.
inline constexpr int8_t kE8pCodes[16] = {3, 7, 11, 0, -1, -5, -9, 0, 1, 5, 9, 0, -3, -7, -11, 0};

void unpack_e8p(const uint8_t* block, uint8_t* levels);  // [256]

// Finds the nearest point for each eight values of x[256] under this scale. Returns the squared error.
double round_e8p(const float* x, float scale, uint16_t* codes);

inline void store_e8p(uint16_t d, const uint16_t* codes, uint8_t* block) {
  store_u16(block, d);
  for (int p = 0; p < kE8pPoints; ++p) store_u16(block + 2 + 2 * p, codes[p]);
}

}  // namespace millrace
