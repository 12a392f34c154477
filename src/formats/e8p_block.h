// Blocks of E8P (e8p.cc), for the kernels and for quantizers that choose the points themselves. Pure functions.
#pragma once

#include "formats/block.h"
#include "formats/e8p_codebook.h"

namespace millrace {

inline constexpr int kE8pBlockValues = 256;
inline constexpr int kE8pPoints = kE8pBlockValues / kE8pValues;
inline constexpr int kE8pBlockBytes = 2 + 2 * kE8pPoints;
// Of GGUF files: no id of ggml's, which has none for this layout. "MR" in the upper half, so that none ever will be.
inline constexpr int kGgufE8p = 0x4d520001;

// Codes of 4 bits that the values of a block are unpacked to: the digit of the magnitude, its sign in bit 2, and in bit
// 3, which the eight values of a point share, whether 1/4 is subtracted. In quarters:
inline constexpr int8_t kE8pCodes[16] = {3, 7, 11, 0, -1, -5, -9, 0, 1, 5, 9, 0, -3, -7, -11, 0};

void unpack_e8p(const uint8_t* block, uint8_t* levels);  // [256]

// The nearest point of each eight of x[256] under this scale; the squared error.
double round_e8p(const float* x, float scale, uint16_t* codes);

inline void store_e8p(uint16_t d, const uint16_t* codes, uint8_t* block) {
  store_u16(block, d);
  for (int p = 0; p < kE8pPoints; ++p) store_u16(block + 2 + 2 * p, codes[p]);
}

}  // namespace millrace
