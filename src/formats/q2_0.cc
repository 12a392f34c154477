// Q2_0: 64 values of 2 bits with one scale. value = d * (q - 1). Frozen, on disk:
//
//   byte 0    2                   18
//        | d  | levels, 4 a byte  |      d: f16; value i is bits 2 (i % 4) and up of byte i / 4
#include "formats/block.h"
#include "formats/format.h"
#include "formats/scale_fit.h"

namespace millrace {
namespace {

constexpr int kValues = 64;
constexpr int kBytes = 18;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    const float d = load_f16(block);
    for (int i = 0; i < kValues; ++i) out[i] = d * static_cast<float>((block[2 + i / 4] >> (i % 4 * 2) & 3) - 1);
  });
}

void set_level(uint8_t* block, int value, int level) { put_bits(block[2 + value / 4], value % 4 * 2, 2, level); }

// The largest magnitude lies near 2 or near 1 times the scale, whose sign may be negative.
void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    const auto round = [](float value) { return static_cast<float>(round_clamped(value, -1, 2)); };
    const F16Scale d = make_f16_scale(fit_scale(x, kValues, 2.0f, 60, round));
    const float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
    store_u16(block, d.bits);
    for (int i = 0; i < kValues; ++i) set_level(block, i, round_clamped(x[i] * inverse, -1, 2) + 1);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

}  // namespace

extern const Format kQ2_0 = {
    .name = "q2_0",
    .summary = "2 bits a value (-1, 0, 1 or 2), one scale for 64",
    .gguf_type = 42,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 4,
    .set_level = set_level,
};

}  // namespace millrace
