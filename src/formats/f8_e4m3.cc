// F8_E4M3: 8-bit float with 4 exponent and 3 mantissa bits, bias 7, no infinities (Micikevicius et al., 2022, "FP8
// Formats for Deep Learning"). 0x7f and 0xff are NaN; the largest value is 448. Scales of FP8 checkpoints belong to
// Weight.
#include <bit>
#include <limits>

#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr float kLargest = 448.0f;

float to_f32(uint8_t byte) {
  uint32_t sign = (byte & 0x80u) << 24;
  uint32_t magnitude = byte & 0x7fu;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude < 8) {  // zero or subnormal: mantissa * 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

uint8_t from_f32(float x) {  // x is finite and within +-kLargest
  uint32_t bits = std::bit_cast<uint32_t>(x);
  auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  float magnitude = std::fabs(x);
  if (magnitude < 0x1p-6f) return static_cast<uint8_t>(sign | round_to_int(magnitude * 0x1p9f));
  bits &= 0x7fffffffu;
  uint32_t rounded = bits + 0x7ffffu + (bits >> 20 & 1);
  return static_cast<uint8_t>(sign | (rounded - (120u << 23)) >> 20);
}

void decode(const uint8_t* source, float* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = to_f32(source[i]);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  for (int64_t i = 0; i < n; ++i) destination[i] = from_f32(clamp_finite(source[i], kLargest));
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
