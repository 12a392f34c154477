// Q5_0: 32 values of 5 bits with one scale. value = d * (q - 16). Frozen, on disk:
//
//   byte 0    2            6                             22
//        | d  | fifth bits | q16|q0  q17|q1 ... q31|q15  |
//
//   d: f16; fifth bits: u32, bit j for value j; each byte holds the low 4 bits of value j low and of j + 16 high.
// The scale maps the value of largest magnitude, with its sign, to q = 0.
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 22;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    uint32_t fifth = load_u32(block + 2);
    for (int j = 0; j < kValues / 2; ++j) {
      int low = (block[6 + j] & 0xf) | static_cast<int>((fifth >> j & 1) << 4);
      int high = (block[6 + j] >> 4) | static_cast<int>((fifth >> (j + 16) & 1) << 4);
      out[j] = d * static_cast<float>(low - 16);
      out[j + kValues / 2] = d * static_cast<float>(high - 16);
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    F16Scale d = make_f16_scale(largest_signed(x, kValues) / -16.0f);
    store_u16(block, d.bits);
    auto quantize = [&](float value) {  // halves round up, away from the long end
      return static_cast<uint32_t>(std::clamp(value * d.inverse + 16.5f, 0.0f, 31.0f));
    };
    uint32_t fifth = 0;
    for (int j = 0; j < kValues / 2; ++j) {
      uint32_t low = quantize(x[j]);
      uint32_t high = quantize(x[j + kValues / 2]);
      block[6 + j] = static_cast<uint8_t>((low & 0xf) | (high & 0xf) << 4);
      fifth |= low >> 4 << j | high >> 4 << (j + 16);
    }
    store_u32(block + 2, fifth);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

void set_level(uint8_t* block, int value, int level) {
  put_nibble(block + 6, value, level);
  put_bits(block[2 + value / 8], value % 8, 1, level >> 4);
}

}  // namespace

extern const Format kQ5_0 = {
    .name = "q5_0",
    .summary = "5 bits a value, one scale for 32",
    .gguf_type = 6,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 32,
    .set_level = set_level,
};

}  // namespace millrace
