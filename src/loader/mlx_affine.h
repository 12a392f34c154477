// MLX's affine quantization (mlx.core.quantize): a matrix NAME.weight of U32 words with NAME.scales and NAME.biases.
//
//   word:   the bits of values one after the other, the first in the lowest bits; a row is whole words
//   value:  scale * q + bias, scale and bias [rows, cols / group_size]
//
// In memory owned by ModelFiles it becomes a format that holds it exactly, if levels have at most 4 bits, groups are
// whole blocks, and scales and biases are F16 numbers: Q4_1, or with 2 and 3 bits Q2_G64, Q2_G128, Q3_G64 or Q3_G128.
// Otherwise it becomes F32, 32 / bits times as large as the file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Unpacks all such matrices if config.json has a "quantization" object; otherwise does nothing. Errors: corrupt
// (inconsistent shapes, a scale that is not finite), unsupported (a mode or width, named).
Result<void> unpack_mlx_affine(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
