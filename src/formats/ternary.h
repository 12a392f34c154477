// Shared by the ternary formats: 256 values of -1, 0 or 1 with one scale. Pure functions.
#pragma once

#include "formats/block.h"

namespace millrace {

inline constexpr int kTernaryValues = 256;
inline constexpr int kTq1ScaleAt = 52, kTq2ScaleAt = 64;  // byte offsets of the scale in a block

// Unpack a block to levels 0 to 2 (also 3 in damaged TQ2_0 blocks); value = d * (level - 1).
void unpack_tq1_0(const uint8_t* block, uint8_t* levels);
void unpack_tq2_0(const uint8_t* block, uint8_t* levels);

// Returns the scale of plain rounding and writes its levels. As in Li et al., 2016, "Ternary Weight Networks", the
// scale is the mean magnitude of all values whose magnitude exceeds 0.7 times the mean of all. Values that are
// already ternary are preserved.
inline F16Scale fit_ternary(const float* x, uint8_t* levels) {
  double sum = 0, above = 0;
  int count = 0;
  for (int i = 0; i < kTernaryValues; ++i) sum += std::fabs(x[i]);
  const double least = 0.7 * sum / kTernaryValues;
  for (int i = 0; i < kTernaryValues; ++i) {
    if (std::fabs(x[i]) <= least) continue;
    above += std::fabs(x[i]);
    ++count;
  }
  const F16Scale d = make_f16_scale(count ? static_cast<float>(above / count) : 0.0f);
  for (int i = 0; i < kTernaryValues; ++i) levels[i] = static_cast<uint8_t>(round_clamped(x[i] * d.inverse, -1, 1) + 1);
  return d;
}

template <void (*unpack)(const uint8_t*, uint8_t*), int kScaleAt>
void decode_ternary(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kTernaryValues, kScaleAt + 2>(source, destination, n, [](const uint8_t* block, float* out) {
    uint8_t levels[kTernaryValues];
    unpack(block, levels);
    const float d = load_f16(block + kScaleAt);
    for (int i = 0; i < kTernaryValues; ++i) out[i] = d * static_cast<float>(levels[i] - 1);
  });
}

}  // namespace millrace
