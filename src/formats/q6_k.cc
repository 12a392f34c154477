// Q6_K: 256 values of 6 bits in 16 sub-blocks of 16. value = d * s * (q - 32), s the int8 scale of the sub-block.
// Frozen, on disk:
//
//   byte 0          64         128        160        192      208  210
//        | low half 0 | low half 1 | high 0   | high 1   | scales | d  |      d: f16, scales: 16 x int8
//
//   Half h holds values 128 h + i. Low byte j = 0..63: the low 4 bits of i = j in the low half, of i = j + 64 in the
//   high half. High byte j = 0..31: the upper 2 bits of i = j, j + 32, j + 64, j + 96, from bit 0 up.
#include "formats/block.h"
#include "formats/format.h"
#include "formats/scale_fit.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int kValues = 256;
constexpr int kBytes = 210;
constexpr int kSubBlocks = 16;
constexpr int kSubValues = 16;

struct Place {
  int low_byte, low_shift, high_byte, high_shift;
};
constexpr Place place(int value) {
  int half = value / 128;
  int i = value % 128;
  return {half * 64 + i % 64, i / 64 * 4, 128 + half * 32 + i % 32, i / 32 * 2};
}

void decode_block(const uint8_t* block, float* out) {
  float d = load_f16(block + 208);
  for (int i = 0; i < kValues; ++i) {
    Place at = place(i);
    int q = (block[at.low_byte] >> at.low_shift & 0xf) | (block[at.high_byte] >> at.high_shift & 3) << 4;
    float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + i / kSubValues]));
    out[i] = scale * static_cast<float>(q - 32);
  }
}

float round_to_grid(float x) { return static_cast<float>(round_clamped(x, -32, 31)); }

}  // namespace

void encode_q6_k_block(const float* x, const float* weights, uint8_t* block) {
  float fits[kSubBlocks];
  for (int b = 0; b < kSubBlocks; ++b)
    fits[b] = fit_scale(x + b * kSubValues, kSubValues, -32.0f, 9, round_to_grid,
                        weights ? weights + b * kSubValues : nullptr);
  F16Scale d = make_f16_scale(largest_signed(fits, kSubBlocks) / -128.0f);
  std::fill_n(block, 192, uint8_t{0});
  for (int b = 0; b < kSubBlocks; ++b) {
    int s = round_clamped(fits[b] * d.inverse, -128, 127);
    block[192 + b] = static_cast<uint8_t>(s);
    float scale = d.stored * static_cast<float>(s);
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    for (int i = b * kSubValues; i < (b + 1) * kSubValues; ++i) {
      int q = round_clamped(x[i] * inverse, -32, 31) + 32;
      Place at = place(i);
      block[at.low_byte] |= static_cast<uint8_t>((q & 0xf) << at.low_shift);
      block[at.high_byte] |= static_cast<uint8_t>(q >> 4 << at.high_shift);
    }
  }
  store_u16(block + 208, d.bits);
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, decode_block);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n,
                                 [](const float* x, uint8_t* block) { encode_q6_k_block(x, nullptr, block); });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block + 208); });
}

void set_level(uint8_t* block, int value, int level) {
  const Place at = place(value);
  put_bits(block[at.low_byte], at.low_shift, 4, level);
  put_bits(block[at.high_byte], at.high_shift, 2, level >> 4);
}

}  // namespace

extern const Format kQ6K = {
    .name = "q6_k",
    .summary = "6 bits a value, an 8-bit scale for 16, one scale for 256",
    .gguf_type = 14,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 64,
    .set_level = set_level,
};

}  // namespace millrace
