// F16: IEEE 754 binary16, little-endian. Encoding clamps to +-65504 instead of rounding to infinity.
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = load_f16(source + i * 2);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store_u16(destination + i * 2, f32_to_f16(clamp_finite(source[i], kLargestF16)));
}

int64_t find_non_finite(const uint8_t* source, int64_t n) { return find_value<uint16_t>(source, n, 0x7c00); }

}  // namespace

extern const Format kF16 = {
    .name = "f16",
    .summary = "IEEE half precision",
    .gguf_type = 1,
    .safetensors = "F16",
    .block_values = 1,
    .block_bytes = 2,
    .activation = Activation::f32,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
