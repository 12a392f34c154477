// The tensors of a Hugging Face folder: one safetensors file, or shards with model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Fills model.files, tensors and tensor_index. `path`: the folder, a .safetensors file or an index; for one shard of a
// model, opens all its shards. Errors: corrupt, unsupported (other weight files).
Result<void> open_safetensors_weights(ModelFiles& model, const std::filesystem::path& path);

// For FP8 checkpoints: moves the tensors NAME_scale_inv and NAME_scale to StoredTensor::scales of each F8_E4M3 matrix
// NAME. NAME_scale_inv has one scale per block of [128, 128] weights, or of quantization_config.weight_block_size;
// NAME_scale has one scale for the matrix or per row. Errors: corrupt (a shape that does not fit).
Result<void> attach_fp8_scales(ModelFiles& model, const nlohmann::ordered_json& config);

// Returns the values of a tensor of scales in F32, F16 or BF16. Errors: corrupt (NaN, infinity), unsupported (another
// type).
Result<std::vector<float>> read_scales(const ModelFiles& model, const StoredTensor& stored);

// Removes each tensor i with `absorbed[i]` from the list of tensors.
void remove_tensors(ModelFiles& model, const std::vector<bool>& absorbed);

}  // namespace millrace
