// F32: IEEE 754 binary32, little-endian.
#include <cfloat>

#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  if (n > 0) std::memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float x = clamp_finite(source[i], FLT_MAX);
    std::memcpy(destination + i * 4, &x, sizeof x);
  }
}

int64_t find_non_finite(const uint8_t* source, int64_t n) { return find_value<uint32_t>(source, n, 0x7f800000); }

}  // namespace

extern const Format kF32 = {
    .name = "f32",
    .summary = "IEEE single precision",
    .loss = Loss::lossless,
    .gguf_type = 0,
    .safetensors = "F32",
    .block_values = 1,
    .block_bytes = 4,
    .activation = Activation::f32,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
