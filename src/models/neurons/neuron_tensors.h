// The tensors of a GGUF model's dense MLPs, as a neuron file stores them.
#pragma once

#include <cstdint>
#include <vector>

#include "models/neurons/neuron_file.h"

namespace millrace {

struct NeuronMatrices {
  const uint8_t* gate = nullptr;  // stored rows; null: the MLP is not gated
  const uint8_t* up = nullptr;    // stored rows
  const uint8_t* down = nullptr;  // stored rows [width][hidden]
};

// The name of a layer's tensor, such as ffn_up.
std::string mlp_tensor_name(int64_t layer, std::string_view matrix);

// `files` must have passed neuron_shape().
NeuronMatrices neuron_matrices(const ModelFiles& files, const NeuronShape& shape, int64_t layer);

// Copies columns [first, first + count) of the down matrix, of one block of its rows: f32 or f16 values, or levels of
// q8_0. `to`: the first column; the next one is `stride` bytes behind it.
void copy_columns(const NeuronMatrices& tensors, const NeuronShape& shape, int64_t first, int64_t count, uint8_t* to,
                  int64_t stride);

// Returns the scales of a q8_0 down matrix, [hidden / 32][width]; empty for other formats.
std::vector<float> column_scales(const NeuronMatrices& tensors, const NeuronShape& shape);

// A hash of shapes, formats and some rows of each matrix. Files made from models with different hashes differ.
uint64_t neuron_identity(const ModelFiles& files, const NeuronShape& shape);

}  // namespace millrace
