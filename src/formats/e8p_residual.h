// Lattice codes of 3 and 4 bits (Tseng et al., 2024, QuIP#: residual quantization). Eight weights are a point p of E8P
// (e8p_codebook.h) plus the residual, which is a multiple of a point r of a second codebook:
//
//   3 bits   p + r / 2         r: one of 256 points of E8 (below)                    8 more bits
//   4 bits   p + 2 / 7 r       r: a point of E8P, too; the paper divides by 3.45     16 more bits
//
// The 256 points of E8 are 0, the 240 points of squared norm 2, and 15 points of squared norm 4. Their order is frozen.
// First is 0. Then come the points with +-1 in two places, by ascending places, then signs ++, +-, -+, --. Then come
// the points of eight halves with an even number of minus signs, in ascending order of the number whose bits are the
// signs of values 0 to 6. Last are the points with 2 in one place, and with -2 in one place except the last.
//
// Values are integer multiples, levels, of a unit: kE8pUnit with 3 bits, kE8pUnit / 7 with 4. Kernels multiply the
// levels:
//
//   3 bits   level = q + h            q: quarters of E8P, h: halves of the second point       -15 to 15
//   4 bits   level = 7 q + 2 q'                                                              -99 to 99
//
// Pure functions.
#pragma once

#include <cstdint>

#include "formats/e8p_block.h"

namespace millrace {

inline constexpr int kE8Points = 256;
inline constexpr int kE8p3BlockBytes = kE8pBlockBytes + kE8pPoints;      // 3.06 bits a value
inline constexpr int kE8p4BlockBytes = kE8pBlockBytes + 2 * kE8pPoints;  // 4.06
inline constexpr int kGgufE8p3 = 0x4d520002;                             // ids that only millrace uses, like kGgufE8p
inline constexpr int kGgufE8p4 = 0x4d520003;
inline constexpr float kE8p3Unit = kE8pUnit;
inline constexpr float kE8p4Unit = kE8pUnit / 7;
inline constexpr int kE8p3Most = 15;
inline constexpr int kE8p4Most = 99;

// Returns the eight values of a point, in halves.
void e8_values(int point, int8_t* halves);

// A code of 24 or 32 bits, with the code of E8P in the low 16 bits.
struct E8pResidual {
  uint32_t code = 0;
  float error = 0;  // squared distance
};
// Find the point of E8P nearest to x[8], and the point of the second codebook nearest to the residual. Values must be
// finite.
E8pResidual nearest_e8p_3(const float* x);
E8pResidual nearest_e8p_4(const float* x);

void e8p_3_levels(uint32_t code, int8_t* levels);  // [8]
void e8p_4_levels(uint32_t code, int8_t* levels);

// Load and store code p of 32 in a block of 256 values with one scale. The scale is that of the lattice times the unit,
// so value = scale * level. A block has all codes of E8P first, then all codes of the second codebook.
uint32_t load_e8p_3(const uint8_t* block, int p);
uint32_t load_e8p_4(const uint8_t* block, int p);
void store_e8p_3(uint8_t* block, int p, uint32_t code);
void store_e8p_4(uint8_t* block, int p, uint32_t code);

}  // namespace millrace
