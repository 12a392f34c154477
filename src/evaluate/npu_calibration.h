// Calibrates the kernel switch `npu` with a text (models/npu/options.h).
#pragma once

#include <memory>
#include <span>

#include "models/npu/options.h"
#include "run/language_model.h"

namespace millrace {

// Runs the text in windows of `context` tokens, and returns the largest magnitudes of the inputs of the model's
// matrices. `threads`: 0: all cores. Errors: user (the text is shorter than a window), unsupported (an encoder; no
// matrix that a graph can compute), resource.
Result<NpuScales> calibrate_npu(const LanguageModel& model, std::span<const TokenId> tokens, int64_t context,
                                int threads);

}  // namespace millrace
