// The tensors of a Hugging Face folder: one safetensors file, or shards with model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Fills model.files, tensors and tensor_index. `path` is the folder, a .safetensors file or an index; a shard of a
// sharded model selects the whole model. Errors: corrupt, unsupported (other weight files).
Result<void> open_safetensors_weights(ModelFiles& model, const std::filesystem::path& path);

// FP8 checkpoints: moves NAME_scale_inv ([128, 128] blocks, or quantization_config.weight_block_size) and NAME_scale
// (one, or one per row) into the scales of each F8_E4M3 matrix NAME. Errors: corrupt (a shape that does not fit).
Result<void> attach_fp8_scales(ModelFiles& model, const nlohmann::ordered_json& config);

// The values of a tensor of scales in F32, F16 or BF16. Errors: corrupt (NaN, infinity), unsupported (another type).
Result<std::vector<float>> read_scales(const ModelFiles& model, const StoredTensor& stored);

// Removes the `absorbed` tensors (by index) from the list.
void remove_tensors(ModelFiles& model, const std::vector<bool>& absorbed);

}  // namespace millrace
