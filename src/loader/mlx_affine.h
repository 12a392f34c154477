// MLX's affine quantization (mlx.core.quantize): a matrix NAME.weight of U32 words with NAME.scales and NAME.biases.
//
//   word:   levels q one after the other, the first in the lowest bits; a row begins at a whole word
//   value:  scale * q + bias; scales and biases are [rows, cols / group_size]
//
// The matrix is converted in memory that ModelFiles owns. If levels have at most 4 bits, groups are whole blocks, and
// scales and biases are F16 numbers, the format is Q4_1, or Q2_G64, Q2_G128, Q3_G64 or Q3_G128 for 2 and 3 bits; values
// are then exact. Otherwise the format is F32, 32 / bits times as large as in the file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Unpacks all such matrices if config.json has a "quantization" object; otherwise does nothing. Errors: corrupt
// (inconsistent shapes, a scale that is not finite), unsupported (a mode or width, which the message names).
Result<void> unpack_mlx_affine(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
