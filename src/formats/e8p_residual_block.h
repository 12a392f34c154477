// The codec of blocks of lattice codes with a residual (e8p_residual.h). Code: a struct that describes codes of 3 or 4
// bits.
#pragma once

#include <cmath>

#include "formats/block.h"
#include "formats/e8p_residual.h"

namespace millrace {

template <typename Code>
void decode_residual(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kE8pBlockValues, Code::kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    const float d = load_f16(block);
    for (int p = 0; p < kE8pPoints; ++p) {
      int8_t levels[kE8pValues];
      Code::levels(Code::load(block, p), levels);
      for (int i = 0; i < kE8pValues; ++i) out[kE8pValues * p + i] = d * static_cast<float>(levels[i]);
    }
  });
}

// Returns the scale of the levels that minimizes the squared error of these codes.
template <typename Code>
float fit_residual_scale(const float* x, const uint32_t* codes) {
  double cross = 0, power = 0;
  for (int p = 0; p < kE8pPoints; ++p) {
    int8_t levels[kE8pValues];
    Code::levels(codes[p], levels);
    for (int i = 0; i < kE8pValues; ++i) {
      cross += double{x[kE8pValues * p + i]} * static_cast<double>(levels[i]);
      power += static_cast<double>(levels[i] * levels[i]);
    }
  }
  return cross > 0 ? static_cast<float>(cross / power) : 0.0f;
}

// Finds the nearest codes under a scale of the lattice. Returns the squared error.
template <typename Code>
double round_residual(const float* x, float scale, uint32_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  double error = 0;
  for (int p = 0; p < kE8pPoints; ++p) {
    float point[kE8pValues];
    for (int i = 0; i < kE8pValues; ++i) point[i] = x[kE8pValues * p + i] * inverse;
    const E8pResidual choice = Code::nearest(point);
    codes[p] = choice.code;
    error += choice.error;
  }
  return error * scale * scale;
}

template <typename Code>
void encode_residual(const float* source, uint8_t* destination, int64_t n) {
  // Scales to try, as fractions of the best scale for normally distributed weights. The other scales fit blocks with
  // fewer or more large weights.
  constexpr float kParts[] = {1, 0.9f, 0.8f, 1.12f, 1.3f, 1.5f};
  encode_blocks<kE8pBlockValues, Code::kBytes>(source, destination, n, [&](const float* x, uint8_t* block) {
    double squares = 0;
    for (int i = 0; i < kE8pBlockValues; ++i) squares += double{x[i]} * x[i];
    const float size = Code::kBestPart * static_cast<float>(std::sqrt(squares / kE8pBlockValues));
    uint32_t codes[kE8pPoints] = {};
    float scale = 0;
    double best = INFINITY;
    for (float part : kParts) {
      const double error = round_residual<Code>(x, part * size, codes);
      if (!(error < best)) continue;
      best = error;
      scale = fit_residual_scale<Code>(x, codes);
    }
    const F16Scale d = make_f16_scale(scale);
    round_residual<Code>(x, d.stored / Code::kUnit, codes);
    store_u16(block, d.bits);
    for (int p = 0; p < kE8pPoints; ++p) Code::store(block, p, codes[p]);
  });
}

template <typename Code>
int64_t find_non_finite_residual(const uint8_t* source, int64_t n) {
  return find_block<kE8pBlockValues, Code::kBytes>(source, n,
                                                   [](const uint8_t* block) { return !f16_is_finite(block); });
}

}  // namespace millrace
