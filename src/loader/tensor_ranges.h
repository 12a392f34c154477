// Checks of the byte ranges of tensors in a file, for GGUF and safetensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// Sets `product` to a * b. Returns false if the product does not fit into an int64_t.
inline bool multiply_checked(int64_t a, int64_t b, int64_t& product) { return !__builtin_mul_overflow(a, b, &product); }

struct TensorRange {
  std::string_view name;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

// Checks that every range is within [begin, file_bytes) and no two ranges overlap. Sorts `ranges` by offset.
// Errors: corrupt; the message names file, tensor and offset.
Result<void> check_tensor_ranges(std::vector<TensorRange>& ranges, uint64_t begin, uint64_t file_bytes,
                                 const std::string& file);

}  // namespace millrace
