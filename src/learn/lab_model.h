// LabModel: the weights of a small Llama and their gradient as flat arrays, with the names and offsets of the tensors.
// LabPass (learn/lab_pass.h) computes the forward and backward passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learn/lab_spec.h"

namespace millrace {

// A matrix [rows, columns] in the flat array of weights; a vector has one row.
struct LabTensor {
  std::string name;
  int64_t rows = 1, columns = 0, offset = 0;
  std::vector<int64_t> parts;  // number of rows of each matrix that is stacked in this one
  bool matrix = false;         // true: a matrix of a block; neither the embedding nor a norm

  // Returns rows [from, from + count) as a tensor.
  LabTensor rows_of(int64_t from, int64_t count) const {
    return {name, count, columns, offset + from * columns, {count}, matrix};
  }
};

struct LabLayerTensors {
  // With experts, gate_up and down hold all experts, one after another.
  LabTensor attention_norm, qkv, out, mlp_norm, gate_up, down;
  LabTensor router;  // [experts, width]; only with experts
};

class LabModel {
 public:
  // `spec` must be trainable(). Weights are random; they depend on `seed` alone.
  LabModel(const ArchSpec& spec, uint64_t seed);

  const ArchSpec& spec() const { return spec_; }
  std::vector<float>& weights() { return weights_; }
  const std::vector<float>& weights() const { return weights_; }
  std::vector<float>& gradient() { return gradient_; }
  const LabTensor& embedding() const { return embedding_; }
  const LabTensor& final_norm() const { return final_norm_; }
  const std::vector<LabLayerTensors>& layers() const { return layers_; }
  std::vector<LabTensor> tensors() const;

 private:
  ArchSpec spec_;
  std::vector<float> weights_, gradient_;
  LabTensor embedding_, final_norm_;
  std::vector<LabLayerTensors> layers_;
};

}  // namespace millrace
