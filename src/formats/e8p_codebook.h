// E8P: a code of 16 bits represents eight weights, as one of 2^16 points of the lattice E8, shifted by 1/4 (Tseng et
// al., 2024, "QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks"). Value i of a
// point:
//
//   sign_i * magnitude_i + shift      magnitude_i: 1/2, 3/2 or 5/2; shift: 1/4 or -1/4, one for all eight values
//
// The signed magnitudes have an even sum, so one sign follows from the other seven. The eight magnitudes are one of 256
// patterns: the 227 patterns of squared norm at most 10, in lexicographic order, then 29 published patterns of squared
// norm 12, which have five 3/2. Codes are frozen; they are those of the checkpoints of QuIP# ("E8P12"):
//
//   bits 8-15   pattern of magnitudes
//   bits 0-7    minus signs; the sign of value i is bit i / 2 + 4 (i % 2)
//
// If the number of minus signs is odd, 1/4 is subtracted and the sign of value 0 is inverted; otherwise, 1/4 is added.
// If the sum of a pattern's magnitudes is odd, the sign of value 7 is inverted.
//
// Pure functions.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int kE8pValues = 8;
inline constexpr int kE8pPatterns = 256;
inline constexpr float kE8pUnit = 0.25f;  // values are odd multiples of this unit, from -11 to 11

// Returns a pattern as digits of 2 bits, the first value lowest: 0, 1, 2 for 1/2, 3/2, 5/2.
uint16_t e8p_digits(int pattern);

// Writes the eight values of a code, in quarters.
void e8p_values(uint16_t code, int8_t* quarters);

// Returns the signs and the shift of a code. Bit i is set if sign_i is minus; bit 8 is set if 1/4 is subtracted.
uint32_t e8p_signs(uint16_t code);

struct E8pChoice {
  uint16_t code = 0;
  float error = 0;  // squared distance
};
// Returns the code of the point nearest to x[8], by an exact search. In a tie, the lower shift wins. Values must be
// finite.
E8pChoice nearest_e8p(const float* x);

}  // namespace millrace
