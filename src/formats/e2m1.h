// E2M1: the 4-bit float of MXFP4 and NVFP4, with a sign, two exponent bits and one mantissa bit (OCP, 2023,
// "Microscaling Formats (MX) Specification"). Pure functions. Codes on disk are frozen:
//
//   codes 0..7: 0 0.5 1 1.5 2 3 4 6; codes 8..15: the negatives of these
#pragma once

#include <cmath>

namespace millrace {

inline constexpr float kE2m1Magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
inline constexpr float kLargestE2m1 = 6.0f;

inline float e2m1_value(int code) { return code & 8 ? -kE2m1Magnitudes[code & 7] : kE2m1Magnitudes[code & 7]; }

// Returns the nearest code. Ties go to the even mantissa; magnitudes above 6 become 6.
inline int nearest_e2m1(float x) {
  const float a = std::fabs(x);
  const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
  return x < 0 ? code | 8 : code;
}

}  // namespace millrace
