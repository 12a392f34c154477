// Fuzzes the safetensors header reader: any bytes are a list of tensors that fill the file, or an error.
#include "loader/safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = millrace::parse_safetensors(std::span<const uint8_t>(data, size), "fuzz.safetensors");
  if (!parsed.ok()) {
    if (parsed.error().message.empty() || parsed.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  uint64_t bytes = 0;
  for (const millrace::SafetensorsTensor& tensor : *parsed) {
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
    bytes += tensor.bytes;
  }
  if (bytes > size) std::abort();
  return 0;
}
