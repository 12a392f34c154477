// Q8_0: 32 values as signed bytes with one scale. value = d * q. Frozen, on disk:
//
//   byte 0    2                    34
//        | d  | q0 q1 ... q31      |      d: f16, q: int8
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 34;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    for (int j = 0; j < kValues; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    F16Scale d = make_f16_scale(std::fabs(largest_signed(x, kValues)) / 127.0f);
    store_u16(block, d.bits);
    for (int j = 0; j < kValues; ++j) block[2 + j] = static_cast<uint8_t>(round_clamped(x[j] * d.inverse, -127, 127));
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

void set_level(uint8_t* block, int value, int level) { block[2 + value] = static_cast<uint8_t>(level - 127); }

}  // namespace

extern const Format kQ8_0 = {
    .name = "q8_0",
    .summary = "8 bits a value, one scale for 32",
    .gguf_type = 8,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 255,
    .set_level = set_level,
};

}  // namespace millrace
