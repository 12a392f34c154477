// The 16 values of IQ4_NL and IQ4_XS, denser around zero, and rounding to them. Pure functions. The values are frozen:
// a value is stored as its index here.
#pragma once

#include <cstdint>

#include "formats/scale_fit.h"

namespace millrace {

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Index of the nearest value; ties go to the higher one.
inline int iq4_nearest(float x) {
  int index = 0;
  for (int i = 0; i < 15; ++i) index += 2.0f * x >= static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]);
  return index;
}

inline float iq4_round(float x) { return static_cast<float>(kIq4Values[iq4_nearest(x)]); }

// The best scale for n values when each is rounded to the codebook.
inline float iq4_fit_scale(const float* x, int n, const float* weights = nullptr) {
  return fit_scale(x, n, -127.0f, 7, iq4_round, weights);
}

}  // namespace millrace
