// Codebooks of 4, 8 or 16 numbers with the smallest mean squared error for the standard normal distribution (Max, 1960,
// "Quantizing for Minimum Distortion"; Lloyd, 1982, "Least Squares Quantization in PCM").
#pragma once

#include <array>

namespace millrace {

using NormalCodes = std::array<float, 16>;  // ascending, symmetric, then zeros

// Divided by the largest, within -1 and 1; exact f16s. bits: 2, 3 or 4.
const NormalCodes& unit_codes(int bits);

// In steps, whole numbers within kMaxCode (LevelTiles::codes), of the size that loses least by it.
struct WholeCodes {
  NormalCodes codes{};
  float step = 0;  // value of one step of the codebook; an exact f16
};
const WholeCodes& whole_codes(int bits);

}  // namespace millrace
