// Rotary position embedding (Su et al., 2021, "RoFormer") and its context extensions: linear interpolation (Chen et
// al., 2023), Llama 3's by-frequency scaling, YaRN (Peng et al., 2023), LongRoPE (Ding et al., 2024).
#pragma once

#include <vector>

#include "models/arch_spec.h"

namespace millrace {

// Angle per position of each of the rotated / 2 pairs. `context` is the longest stream that the model will see:
// LongRoPE uses its long factors beyond the original context.
std::vector<double> rope_frequencies(const RopeSpec& rope, int64_t context);

// Factor of cos and sin (YaRN's and LongRoPE's attention factor); 1 otherwise.
float rope_scale(const RopeSpec& rope);

}  // namespace millrace
