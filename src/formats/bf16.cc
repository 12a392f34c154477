// BF16: the upper half of an IEEE single, little-endian. Encoding clamps to the largest finite value.
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr float kLargestBf16 = 0x1.FEp127f;

void decode(const uint8_t* source, float* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = bf16_to_f32(load_u16(source + i * 2));
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) store_u16(destination + i * 2, f32_to_bf16(clamp_finite(source[i], kLargestBf16)));
}

int64_t find_non_finite(const uint8_t* source, int64_t n) { return find_value<uint16_t>(source, n, 0x7f80); }

}  // namespace

extern const Format kBf16 = {
    .name = "bf16",
    .summary = "bfloat16: the range of single precision with 8 bits of mantissa",
    .paper = "Kalamkar et al., 2019, A Study of BFLOAT16 for Deep Learning Training",
    .gguf_type = 30,
    .safetensors = "BF16",
    .block_values = 1,
    .block_bytes = 2,
    .activation = Activation::bf16,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
