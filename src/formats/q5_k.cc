// Q5_K: 256 values of 5 bits in 8 sub-blocks of 32. value = d * s * q - dmin * m, s and m the 6-bit scale and minimum
// of the sub-block. Frozen, on disk:
//
//   byte 0    2      4        16           48            80     112    144    176
//        | d  | dmin | scales | fifth bits | sub 1|sub 0 | 3|2  | 5|4  | 7|6  |      d, dmin: f16; scales: k_scales.h
//
//   fifth bits: byte j, bit b is bit 4 of value j of sub-block b. Byte j of a pair of sub-blocks: the low 4 bits of
//   value j of the first in the low half, of the second in the high half.
#include "formats/block.h"
#include "formats/format.h"
#include "formats/k_affine.h"
#include "formats/k_scales.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int kValues = 256;
constexpr int kBytes = 176;
constexpr int kSubBlocks = 8;
constexpr int kSubValues = 32;

void decode_block(const uint8_t* block, float* out) {
  float d = load_f16(block);
  float dmin = load_f16(block + 2);
  KScaleMin scales = unpack_k_scale_min(block + 4);
  const uint8_t* fifth = block + 16;
  for (int b = 0; b < kSubBlocks; ++b, out += kSubValues) {
    const uint8_t* pair = block + 48 + b / 2 * kSubValues;
    float scale = d * static_cast<float>(scales.scale[b]);
    float minimum = dmin * static_cast<float>(scales.minimum[b]);
    for (int j = 0; j < kSubValues; ++j) {
      int q = (pair[j] >> (b % 2 * 4) & 0xf) | (fifth[j] >> b & 1) << 4;
      out[j] = scale * static_cast<float>(q) - minimum;
    }
  }
}

}  // namespace

void encode_q5_k_block(const float* x, const float* weights, uint8_t* block) {
  KAffineBlock fit = fit_k_affine(x, kSubBlocks, 31, 63, weights);
  KScaleMin scales;
  std::copy_n(fit.scale, kSubBlocks, scales.scale);
  std::copy_n(fit.minimum, kSubBlocks, scales.minimum);
  store_u16(block, fit.d);
  store_u16(block + 2, fit.dmin);
  pack_k_scale_min(scales, block + 4);
  std::fill_n(block + 16, kBytes - 16, uint8_t{0});
  for (int i = 0; i < kValues; ++i) {
    int b = i / kSubValues;
    int j = i % kSubValues;
    block[16 + j] |= static_cast<uint8_t>(fit.q[i] >> 4 << b);
    block[48 + b / 2 * kSubValues + j] |= static_cast<uint8_t>((fit.q[i] & 0xf) << (b % 2 * 4));
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, decode_block);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n,
                                 [](const float* x, uint8_t* block) { encode_q5_k_block(x, nullptr, block); });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(
      source, n, [](const uint8_t* block) { return !f16_is_finite(block) || !f16_is_finite(block + 2); });
}

void set_level(uint8_t* block, int value, int level) {
  put_bits(block[48 + value / 64 * kSubValues + value % kSubValues], value / kSubValues % 2 * 4, 4, level);
  put_bits(block[16 + value % kSubValues], value / kSubValues, 1, level >> 4);
}

}  // namespace

extern const Format kQ5K = {
    .name = "q5_k",
    .summary = "5 bits a value, 6-bit scale and minimum for 32, two scales for 256",
    .gguf_type = 13,
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
