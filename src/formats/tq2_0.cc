// TQ2_0: 256 ternary values of 2 bits with one scale. value = d * (q - 1). Frozen, on disk:
//
//   byte 0               32                64   66
//        | values 0..127 | values 128..255 | d  |      d: f16
//
//   byte j of a half: value j in bits 0-1, j + 32 in bits 2-3, j + 64 in bits 4-5, j + 96 in bits 6-7.
#include "formats/format.h"
#include "formats/ternary.h"

namespace millrace {

void unpack_tq2_0(const uint8_t* block, uint8_t* levels) {
  for (int i = 0; i < kTernaryValues; ++i)
    levels[i] = static_cast<uint8_t>(block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
}

namespace {

constexpr int kBytes = kTq2ScaleAt + 2;

void set_level(uint8_t* block, int value, int level) {
  put_bits(block[value / 128 * 32 + value % 32], value % 128 / 32 * 2, 2, level);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kTernaryValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    uint8_t levels[kTernaryValues];
    store_u16(block + kTq2ScaleAt, fit_ternary(x, levels).bits);
    std::fill_n(block, kTq2ScaleAt, uint8_t{0});
    for (int i = 0; i < kTernaryValues; ++i) set_level(block, i, levels[i]);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kTernaryValues, kBytes>(source, n,
                                            [](const uint8_t* block) { return !f16_is_finite(block + kTq2ScaleAt); });
}

}  // namespace

extern const Format kTq2_0 = {
    .name = "tq2_0",
    .summary = "ternary values of 2 bits, one scale for 256",
    .gguf_type = 35,
    .safetensors = "",
    .block_values = kTernaryValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode_ternary<unpack_tq2_0, kTq2ScaleAt>,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 3,
    .set_level = set_level,
};

}  // namespace millrace
