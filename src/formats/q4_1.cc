// Q4_1: 32 values of 4 bits with a scale and a minimum. value = d * q + m. Frozen, on disk:
//
//   byte 0    2    4                             20
//        | d  | m  | q16|q0  q17|q1 ... q31|q15  |      d, m: f16; each byte holds value j low and value j + 16 high
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 20;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    float m = load_f16(block + 2);
    for (int j = 0; j < kValues / 2; ++j) {
      out[j] = d * static_cast<float>(block[4 + j] & 0xf) + m;
      out[j + kValues / 2] = d * static_cast<float>(block[4 + j] >> 4) + m;
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    auto [low, high] = std::minmax_element(x, x + kValues);
    F16Scale d = make_f16_scale((*high - *low) / 15.0f);
    F16Scale m = make_f16_scale(*low);
    store_u16(block, d.bits);
    store_u16(block + 2, m.bits);
    auto quantize = [&](float value) {
      return static_cast<uint8_t>(std::clamp((value - *low) * d.inverse + 0.5f, 0.0f, 15.0f));
    };
    for (int j = 0; j < kValues / 2; ++j) {
      block[4 + j] = static_cast<uint8_t>(quantize(x[j]) | quantize(x[j + kValues / 2]) << 4);
    }
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(
      source, n, [](const uint8_t* block) { return !f16_is_finite(block) || !f16_is_finite(block + 2); });
}

void set_level(uint8_t* block, int value, int level) { put_nibble(block + 4, value, level); }

}  // namespace

extern const Format kQ4_1 = {
    .name = "q4_1",
    .summary = "4 bits a value, a scale and a minimum for 32",
    .gguf_type = 3,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 16,
    .set_level = set_level,
};

}  // namespace millrace
