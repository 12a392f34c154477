// E8P: a code of 16 bits represents eight weights, one of 2^16 points of the lattice E8, all moved by 1/4 (Tseng et
// al., 2024, "QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks"). A point is
//
//   sign_i * magnitude_i + 1/4 or - 1/4, the same for all eight      magnitude: 1/2, 3/2 or 5/2
//
// The signed magnitudes have an even sum, so one sign follows from the other seven. The magnitudes are the 227 patterns
// of a squared norm of at most 10, in lexicographic order, and 29 published ones of norm 12, with five 3/2. Frozen:
// codes are those of the checkpoints of QuIP# ("E8P12"):
//
//   bits 8-15   pattern of magnitudes
//   bits 0-7    minus signs, that of value i at bit i / 2 + 4 (i % 2). An odd number of them means - 1/4, and the sign
//   of
//               value 0 is then the other one. Patterns of an odd sum have the sign of value 7 the other way round.
//
// Pure functions.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int kE8pValues = 8;
inline constexpr int kE8pPatterns = 256;
inline constexpr float kE8pUnit = 0.25f;  // values are odd multiples of it, from -11 to 11

// Digits of 2 bits, the first value lowest: 0, 1, 2 for 1/2, 3/2, 5/2.
uint16_t e8p_digits(int pattern);

// The eight values of a code, in quarters.
void e8p_values(uint16_t code, int8_t* quarters);

// Signs and shift of a code: bit i is set where value i is minus its magnitude, bit 8 where 1/4 is subtracted.
uint32_t e8p_signs(uint16_t code);

struct E8pChoice {
  uint16_t code = 0;
  float error = 0;  // squared distance
};
// The nearest point to x[8], by an exact search; the lower shift wins a tie. Values must be finite.
E8pChoice nearest_e8p(const float* x);

}  // namespace millrace
