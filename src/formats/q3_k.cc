// Q3_K: 256 values of 3 bits in 16 sub-blocks of 16. value = d * (s - 32) * (q - 4), s the 6-bit scale of the
// sub-block. Frozen, on disk:
//
//   byte 0            32              64                96        108  110
//        | third bits | values 0..127 | values 128..255 | scales  | d  |      d: f16; scales: k_scales.h
//
//   third bits: byte j, bit g is bit 2 of value 32 g + j. Byte j of a half: the low two bits of value j in bits 0-1, of
//   j + 32 in bits 2-3, of j + 64 in bits 4-5, of j + 96 in bits 6-7.
#include "formats/block.h"
#include "formats/format.h"
#include "formats/k_scales.h"
#include "formats/scale_fit.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int kValues = 256;
constexpr int kBytes = 110;
constexpr int kSubBlocks = 16;
constexpr int kSubValues = 16;

void decode_block(const uint8_t* block, float* out) {
  float d = load_f16(block + 108);
  uint8_t scales[kSubBlocks];
  unpack_q3_k_scales(block + 96, scales);
  for (int i = 0; i < kValues; ++i) {
    int low = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    int third = block[i % 32] >> (i / 32) & 1;
    float scale = d * static_cast<float>(scales[i / kSubValues] - 32);
    out[i] = scale * static_cast<float>((low | third << 2) - 4);
  }
}

float round_to_grid(float x) { return static_cast<float>(round_clamped(x, -4, 3)); }

}  // namespace

void encode_q3_k_block(const float* x, const float* weights, uint8_t* block) {
  float fits[kSubBlocks];
  for (int b = 0; b < kSubBlocks; ++b)
    fits[b] = fit_scale(x + b * kSubValues, kSubValues, -4.0f, 9, round_to_grid,
                        weights ? weights + b * kSubValues : nullptr);
  F16Scale d = make_f16_scale(largest_signed(fits, kSubBlocks) / -32.0f);
  std::fill_n(block, 96, uint8_t{0});
  uint8_t scales[kSubBlocks];
  for (int b = 0; b < kSubBlocks; ++b) {
    int s = round_clamped(fits[b] * d.inverse, -32, 31);
    scales[b] = static_cast<uint8_t>(s + 32);
    float scale = d.stored * static_cast<float>(s);
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    for (int i = b * kSubValues; i < (b + 1) * kSubValues; ++i) {
      int q = round_clamped(x[i] * inverse, -4, 3) + 4;
      block[32 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << (i % 128 / 32 * 2));
      block[i % 32] |= static_cast<uint8_t>(q >> 2 << (i / 32));
    }
  }
  pack_q3_k_scales(scales, block + 96);
  store_u16(block + 108, d.bits);
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, decode_block);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n,
                                 [](const float* x, uint8_t* block) { encode_q3_k_block(x, nullptr, block); });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block + 108); });
}

void set_level(uint8_t* block, int value, int level) {
  put_bits(block[32 + value / 128 * 32 + value % 32], value % 128 / 32 * 2, 2, level);
  put_bits(block[value % 32], value / 32, 1, level >> 2);
}

}  // namespace

extern const Format kQ3K = {
    .name = "q3_k",
    .summary = "3 bits a value, a 6-bit scale for 16, one scale for 256",
    .gguf_type = 11,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 8,
    .set_level = set_level,
};

}  // namespace millrace
