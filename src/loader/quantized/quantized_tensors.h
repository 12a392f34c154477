// The tensors of one quantized matrix, which the methods (methods.h) read, and weight parts, which they add.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// The tensors of one quantized matrix: `prefix` ("model.layers.0.self_attn.q_proj.") and a name.
class QuantizedTensors {
 public:
  QuantizedTensors(ModelFiles& model, std::string prefix) : model_(model), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  StoredTensor* find(std::string_view name) const;  // null if absent
  // A [rows, cols] tensor; `rows` or `cols` -1: any, at least 1. Errors: corrupt (missing, another type or shape).
  Result<const StoredTensor*> matrix(std::string_view name, std::string_view type, int64_t rows, int64_t cols) const;
  // [rows, cols] numbers in F32, F16 or BF16; a column may be stored as [rows]. Errors: corrupt (also NaN, infinity).
  Result<std::vector<float>> numbers(std::string_view name, int64_t rows, int64_t cols) const;
  // [n] integers in I32 or I64, each from 0 to `most`.
  Result<std::vector<int32_t>> integers(std::string_view name, int64_t n, int64_t most) const;
  Error wrong(const StoredTensor& stored, const std::string& what) const;

 private:
  ModelFiles& model_;
  std::string prefix_;
};

// Integers of `bits` in little-endian words of 32, the first in the lowest bits; they may cross words.
uint32_t packed_bits(const uint8_t* words, int64_t stride_words, int64_t bit, int bits);

// Adds a weight part (models/weight_parts_loader.h). References to the model's tensors are invalid after it.
Result<void> add_part(ModelFiles& model, std::string name, size_t file, const std::vector<float>& values);

}  // namespace millrace
