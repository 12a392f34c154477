// Folders that store all experts of a layer in one tensor and interleave the rows of gate and up: gpt-oss (OpenAI,
// 2025, gpt-oss-120b & gpt-oss-20b Model Card). Row 2 i of gate_up is row i of gate; row 2 i + 1 is row i of up.
//
//   mlp.experts.gate_up_proj         [experts, width, 2 hidden]; outputs are the last dimension
//   mlp.experts.gate_up_proj_bias    [experts, 2 hidden]
//   mlp.experts.down_proj            [experts, hidden, width]; outputs are the last dimension
//   mlp.experts.down_proj_bias       [experts, width]
//
// The published files store the matrices in MXFP4, outputs first:
//
//   ..._blocks  [experts, outputs, inputs / 32, 16] U8   value 2 j of a block is the low half of byte j
//   ..._scales  [experts, outputs, inputs / 32] U8       exponents of 2, plus 127
//
// unpack_interleaved_experts() replaces them by matrices that every architecture can read:
// mlp.experts.gate_proj.weight, up_proj.weight and down_proj.weight [experts * outputs, inputs], and .bias [experts,
// outputs].
#pragma once

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Returns true if folders with this class or model type in config.json have such experts.
bool has_interleaved_experts(std::string_view architecture);

// Replaces the tensors of such experts; does nothing for other architectures. Errors: corrupt (a shape that does not
// fit, NaN as a scale), unsupported (another type), resource.
Result<void> unpack_interleaved_experts(ModelFiles& model);

}  // namespace millrace
