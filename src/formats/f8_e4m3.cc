// F8_E4M3: 8-bit floats (e4m3.h), as FP8 checkpoints store them. Their scales belong to Weight.
#include "formats/e4m3.h"
#include "formats/format.h"

namespace millrace {
namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = e4m3_to_f32(source[i]);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = f32_to_e4m3(clamp_finite(source[i], kLargestE4m3));
}

int64_t find_non_finite(const uint8_t* source, int64_t n) { return find_value<uint8_t>(source, n, 0x7f); }

}  // namespace

extern const Format kF8E4m3 = {
    .name = "f8_e4m3",
    .summary = "8-bit float with 4 exponent bits, separate scales per matrix",
    .paper = "Micikevicius et al., 2022, FP8 Formats for Deep Learning",
    .gguf_type = -1,
    .safetensors = "F8_E4M3",
    .block_values = 1,
    .block_bytes = 1,
    .activation = Activation::f32,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
