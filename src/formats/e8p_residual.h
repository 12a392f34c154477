// Lattice codes of 3 and 4 bits (Tseng et al., 2024, QuIP#: residual quantization). Eight weights are a point of E8P
// (e8p_codebook.h) plus their residual, which is a point of a second, finer codebook:
//
//   3 bits   p + r / 2         r: one of 256 points of E8 (below)                    8 more bits
//   4 bits   p + 2 / 7 r       r: a point of E8P, too; the paper divides by 3.45     16 more bits
//
// The 256 points are 0, the 240 of squared norm 2, and 15 of norm 4. Frozen, in this order: 0; +-1 in two places, by
// ascending places, then signs ++, +-, -+, --; halves with an even number of minus signs, those of values 0 to 6 as
// bits of a number in ascending order; 2 in each place, -2 in all but the last.
//
// Values are whole numbers of a unit (kE8pUnit / 1 with 3 bits, / 7 with 4), which kernels multiply:
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
inline constexpr int kGgufE8p3 = 0x4d520002;                             // as kGgufE8p
inline constexpr int kGgufE8p4 = 0x4d520003;
inline constexpr float kE8p3Unit = kE8pUnit;
inline constexpr float kE8p4Unit = kE8pUnit / 7;
inline constexpr int kE8p3Most = 15;
inline constexpr int kE8p4Most = 99;

// The eight values of a point, in halves.
void e8_values(int point, int8_t* halves);

// A code of 24 or 32 bits, that of E8P lowest.
struct E8pResidual {
  uint32_t code = 0;
  float error = 0;  // squared distance
};
// The nearest point of E8P to x[8], and of the second codebook to the rest. Values must be finite.
E8pResidual nearest_e8p_3(const float* x);
E8pResidual nearest_e8p_4(const float* x);

void e8p_3_levels(uint32_t code, int8_t* levels);  // [8]
void e8p_4_levels(uint32_t code, int8_t* levels);

// Blocks of 256 values under one scale: that of the lattice times the unit, so that value = scale * level. Codes of
// E8P first, then the others; code p of 32.
uint32_t load_e8p_3(const uint8_t* block, int p);
uint32_t load_e8p_4(const uint8_t* block, int p);
void store_e8p_3(uint8_t* block, int p, uint32_t code);
void store_e8p_4(uint8_t* block, int p, uint32_t code);

}  // namespace millrace
