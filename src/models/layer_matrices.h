// The matrices of a layer: loading those of its MLP or mixture of experts, and listing all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/weight_loader.h"

namespace millrace {

// `prefix` is "blk.3.", `path` is named in messages. Errors: corrupt, unsupported.
Result<void> load_mlp(WeightLoader& loader, const ArchSpec& spec, const std::string& prefix, int64_t hidden,
                      LayerWeights& layer);
Result<void> load_moe(WeightLoader& loader, const std::string& path, const ArchSpec& spec, const std::string& prefix,
                      const MoeSpec& moe, LayerWeights& layer);

// Appends those that the layer has.
void add_matrices(LayerWeights& layer, std::vector<Weight*>& out);

// The GGUF tensor with the matrix that multiplies the residual stream where it passes a layer's mixer or MLP
// (LayerWeights::attention_shortcut). Only millrace reads it.
std::string shortcut_tensor(int64_t layer, bool mlp);
bool is_shortcut(std::string_view tensor);

}  // namespace millrace
