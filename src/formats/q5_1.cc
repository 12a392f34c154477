// Q5_1: 32 values of 5 bits with a scale and a minimum. value = d * q + m. Frozen, on disk:
//
//   byte 0    2    4            8                             24
//        | d  | m  | fifth bits | q16|q0  q17|q1 ... q31|q15  |
//
//   d, m: f16; fifth bits: u32, bit j for value j; each byte holds the low 4 bits of value j low and of j + 16 high.
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 24;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    float m = load_f16(block + 2);
    uint32_t fifth = load_u32(block + 4);
    for (int j = 0; j < kValues / 2; ++j) {
      uint32_t low = (block[8 + j] & 0xfu) | (fifth >> j & 1) << 4;
      uint32_t high = (block[8 + j] >> 4) | (fifth >> (j + 16) & 1) << 4;
      out[j] = d * static_cast<float>(low) + m;
      out[j + kValues / 2] = d * static_cast<float>(high) + m;
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    auto [lowest, highest] = std::minmax_element(x, x + kValues);
    F16Scale d = make_f16_scale((*highest - *lowest) / 31.0f);
    F16Scale m = make_f16_scale(*lowest);
    store_u16(block, d.bits);
    store_u16(block + 2, m.bits);
    auto quantize = [&](float value) {
      return static_cast<uint32_t>(std::clamp((value - *lowest) * d.inverse + 0.5f, 0.0f, 31.0f));
    };
    uint32_t fifth = 0;
    for (int j = 0; j < kValues / 2; ++j) {
      uint32_t low = quantize(x[j]);
      uint32_t high = quantize(x[j + kValues / 2]);
      block[8 + j] = static_cast<uint8_t>((low & 0xf) | (high & 0xf) << 4);
      fifth |= low >> 4 << j | high >> 4 << (j + 16);
    }
    store_u32(block + 4, fifth);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(
      source, n, [](const uint8_t* block) { return !f16_is_finite(block) || !f16_is_finite(block + 2); });
}

void set_level(uint8_t* block, int value, int level) {
  put_nibble(block + 8, value, level);
  put_bits(block[4 + value / 8], value % 8, 1, level >> 4);
}

}  // namespace

extern const Format kQ5_1 = {
    .name = "q5_1",
    .summary = "5 bits a value, a scale and a minimum for 32",
    .gguf_type = 7,
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
