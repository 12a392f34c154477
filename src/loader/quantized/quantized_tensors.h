// Helpers of the quantization methods (methods.h): reading the tensors of a quantized matrix, and adding weight parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// The tensors of one quantized matrix. Their names are `prefix` ("model.layers.0.self_attn.q_proj.") and a suffix, the
// parameter `name` of the functions below.
class QuantizedTensors {
 public:
  QuantizedTensors(ModelFiles& model, std::string prefix) : model_(model), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  StoredTensor* find(std::string_view name) const;  // null if absent
  // Returns a [rows, cols] tensor. -1 for `rows` or `cols`: any number, at least 1. Errors: corrupt (missing, another
  // type or shape).
  Result<const StoredTensor*> matrix(std::string_view name, std::string_view type, int64_t rows, int64_t cols) const;
  // Returns the numbers of a [rows, cols] tensor in F32, F16 or BF16; [rows, 1] may be stored as [rows]. Errors:
  // corrupt (missing, another type or shape, NaN, infinity).
  Result<std::vector<float>> numbers(std::string_view name, int64_t rows, int64_t cols) const;
  // Returns the values of an [n] tensor of integers in I32 or I64, each from 0 to `most`. Errors: corrupt.
  Result<std::vector<int32_t>> integers(std::string_view name, int64_t n, int64_t most) const;
  Error wrong(const StoredTensor& stored, const std::string& what) const;

 private:
  ModelFiles& model_;
  std::string prefix_;
};

// Returns the integer of `bits` bits that begins at bit `bit` of a stream of little-endian 32-bit words, which
// have a distance of `stride_words` words. Lower bits come first; an integer may cross a word boundary.
uint32_t packed_bits(const uint8_t* words, int64_t stride_words, int64_t bit, int bits);

// Adds a weight part (models/weight_parts_loader.h). Invalidates references to the model's tensors.
Result<void> add_part(ModelFiles& model, std::string name, size_t file, const std::vector<float>& values);

}  // namespace millrace
