// IQ4_XS: 256 values in 8 sub-blocks of 32, each value an index into a codebook of 16.
// value = d * (s - 32) * codebook[q], s the 6-bit scale of its sub-block. Frozen, on disk:
//
//   byte 0    2         4                   8              136
//        | d  | s high  | s low 1|0 3|2 ... | 8 x 16 bytes |
//
//   d: f16; s high: u16, bits 2b and 2b + 1 are the upper two bits of s[b]; s low: byte i holds the low 4 bits of s[2i]
//   low and of s[2i + 1] high; byte j of a sub-block holds value j low and value j + 16 high.
#include "formats/block.h"
#include "formats/format.h"
#include "formats/iq4_codebook.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int kValues = 256;
constexpr int kBytes = 136;
constexpr int kSubBlocks = 8;
constexpr int kSubValues = 32;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    uint32_t scales_high = load_u16(block + 2);
    const uint8_t* q = block + 8;
    for (int b = 0; b < kSubBlocks; ++b, q += kSubValues / 2, out += kSubValues) {
      uint32_t s = (block[4 + b / 2] >> (b % 2 * 4) & 0xfu) | (scales_high >> (2 * b) & 3) << 4;
      float scale = d * static_cast<float>(static_cast<int>(s) - 32);
      for (int j = 0; j < kSubValues / 2; ++j) {
        out[j] = scale * static_cast<float>(kIq4Values[q[j] & 0xf]);
        out[j + kSubValues / 2] = scale * static_cast<float>(kIq4Values[q[j] >> 4]);
      }
    }
  });
}

}  // namespace

void encode_iq4_xs_block(const float* x, const float* weights, uint8_t* block) {
  float scales[kSubBlocks];
  for (int b = 0; b < kSubBlocks; ++b)
    scales[b] = iq4_fit_scale(x + b * kSubValues, kSubValues, weights ? weights + b * kSubValues : nullptr);
  F16Scale d = make_f16_scale(largest_signed(scales, kSubBlocks) / -32.0f);
  float inverse_d = d.stored != 0 ? 1.0f / d.stored : 0.0f;
  std::fill_n(block, 8, uint8_t{0});
  store_u16(block, d.bits);
  uint32_t scales_high = 0;
  uint8_t* q = block + 8;
  for (int b = 0; b < kSubBlocks; ++b, q += kSubValues / 2, x += kSubValues) {
    int s = round_clamped(scales[b] * inverse_d, -32, 31);
    auto stored = static_cast<uint32_t>(s + 32);
    block[4 + b / 2] |= static_cast<uint8_t>((stored & 0xf) << (b % 2 * 4));
    scales_high |= stored >> 4 << (2 * b);
    float scale = d.stored * static_cast<float>(s);
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    for (int j = 0; j < kSubValues / 2; ++j) {
      int low = iq4_nearest(x[j] * inverse);
      int high = iq4_nearest(x[j + kSubValues / 2] * inverse);
      q[j] = static_cast<uint8_t>(low | high << 4);
    }
  }
  store_u16(block + 2, static_cast<uint16_t>(scales_high));
}

namespace {

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n,
                                 [](const float* x, uint8_t* block) { encode_iq4_xs_block(x, nullptr, block); });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

void set_level(uint8_t* block, int value, int level) {
  put_nibble(block + 8 + value / kSubValues * 16, value % kSubValues, level);
}

}  // namespace

extern const Format kIq4Xs = {
    .name = "iq4_xs",
    .summary = "4 bits a value from a non-linear codebook, a 6-bit scale for 32, one scale for 256",
    .gguf_type = 23,
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
