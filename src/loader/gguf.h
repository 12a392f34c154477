// Parses one GGUF file, v2 or v3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
//   | "GGUF" | u32 version | u64 tensors | u64 keys | key-values ... | tensor infos ... | padding | tensor data ... |
//
//   tensor info: u64 length, name; u32 rank; u64 dims[rank] (innermost first); u32 type; u64 offset in the data section
//
// Parsing allocates in proportion to the data read, never to the sizes that the file declares.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/gguf_metadata.h"
#include "loader/gguf_types.h"

namespace millrace {

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  int rank = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // outermost first
  uint64_t offset = 0;                         // in the file
  uint64_t bytes = 0;
};

struct GgufFile {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // in file order
};

// Checks everything: counts, names, types, dimensions, ranges and overlaps. `file` is used in messages.
// Errors: corrupt; unsupported (version 1, big-endian, a removed tensor type).
Result<GgufFile> parse_gguf(std::span<const uint8_t> image, const std::string& file);

}  // namespace millrace
