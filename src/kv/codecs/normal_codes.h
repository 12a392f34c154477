// Codebooks of 4, 8 or 16 numbers that are optimal for the standard normal distribution in the mean squared error (Max,
// 1960, "Quantizing for Minimum Distortion"; Lloyd, 1982, "Least Squares Quantization in PCM").
#pragma once

#include <array>

namespace millrace {

using NormalCodes = std::array<float, 16>;

// Ascending, symmetric, exact f16s, then zeros. bits: 2, 3 or 4.
const NormalCodes& normal_codes(int bits);
// The same divided by the largest, within -1 and 1.
const NormalCodes& unit_codes(int bits);

}  // namespace millrace
