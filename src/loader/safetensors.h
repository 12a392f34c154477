// Parses one safetensors file (https://github.com/huggingface/safetensors#format).
//
//   | u64 header bytes | JSON header, padded with spaces | tensor data ... |
//
//   header: {"NAME": {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [begin, end]}, ...,
//            "__metadata__": {...}}
//
// Offsets are relative to the end of the header. The data has neither holes nor overlaps, and may be unaligned. The
// header is parsed token by token; only the tensors are stored, and duplicate keys are detected.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct SafetensorsTensor {
  std::string name;
  std::string_view dtype;  // "BF16"; static text, one of the known names
  int rank = 0;            // as stored; if above 4, dims[0] is the product of the outermost dimensions
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // outermost first
  uint64_t offset = 0;                         // in the file
  uint64_t bytes = 0;
};

// Returns the tensors in file order. Checks header size, JSON, dtypes, shapes, sizes, ranges, holes and overlaps.
// `file` is used in messages. Errors: corrupt.
Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const uint8_t> image, const std::string& file);

}  // namespace millrace
