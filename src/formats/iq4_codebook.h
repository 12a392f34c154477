// The 16 values of IQ4_NL and IQ4_XS, which are denser around zero, and rounding to them. Blocks store indices into
// this table, so it is frozen. Pure functions.
#pragma once

#include <cstdint>

#include "formats/scale_fit.h"

namespace millrace {

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Returns the index of the nearest value; the higher one in a tie.
inline int iq4_nearest(float x) {
  int index = 0;
  for (int i = 0; i < 15; ++i) index += 2.0f * x >= static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
  return index;
}

inline float iq4_round(float x) { return static_cast<float>(kIq4Values[iq4_nearest(x)]); }

// Returns the best scale for n values that are rounded to the codebook.
inline float iq4_fit_scale(const float* x, int n, const float* weights = nullptr) {
  return fit_scale(x, n, -127.0f, 7, iq4_round, weights);
}

}  // namespace millrace
