// Q4_0: 32 values of 4 bits with one scale. value = d * (q - 8). Frozen, on disk:
//
//   byte 0    2                             18
//        | d  | q16|q0  q17|q1 ... q31|q15  |      d: f16; each byte holds value j low and value j + 16 high
//
// The scale maps the value of largest magnitude, with its sign, to q = 0: that end of the range is one step longer.
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 18;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    for (int j = 0; j < kValues / 2; ++j) {
      out[j] = d * static_cast<float>((block[2 + j] & 0xf) - 8);
      out[j + kValues / 2] = d * static_cast<float>((block[2 + j] >> 4) - 8);
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    F16Scale d = make_f16_scale(largest_signed(x, kValues) / -8.0f);
    store_u16(block, d.bits);
    auto quantize = [&](float value) {  // halves round up, away from the long end
      return static_cast<uint8_t>(std::clamp(value * d.inverse + 8.5f, 0.0f, 15.0f));
    };
    for (int j = 0; j < kValues / 2; ++j) {
      block[2 + j] = static_cast<uint8_t>(quantize(x[j]) | quantize(x[j + kValues / 2]) << 4);
    }
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

void set_level(uint8_t* block, int value, int level) { put_nibble(block + 2, value, level); }

}  // namespace

extern const Format kQ4_0 = {
    .name = "q4_0",
    .summary = "4 bits a value, one scale for 32",
    .gguf_type = 2,
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
