// Q2_K: 256 values of 2 bits in 16 sub-blocks of 16. value = d * s * q - dmin * m, s and m the 4-bit scale and minimum
// of the sub-block. Frozen, on disk:
//
//   byte 0                16              48              80   82     84
//        | m0|s0 .. m15|s15 | values 0..127 | values 128..255 | d  | dmin |      d, dmin: f16
//
//   byte j of a half: value j in bits 0-1, j + 32 in bits 2-3, j + 64 in bits 4-5, j + 96 in bits 6-7.
#include "formats/block.h"
#include "formats/format.h"
#include "formats/k_affine.h"
#include "formats/weighted_rounding.h"

namespace millrace {
namespace {

constexpr int kValues = 256;
constexpr int kBytes = 84;
constexpr int kSubBlocks = 16;
constexpr int kSubValues = 16;

void decode_block(const uint8_t* block, float* out) {
  float d = load_f16(block + 80);
  float dmin = load_f16(block + 82);
  for (int i = 0; i < kValues; ++i) {
    int b = i / kSubValues;
    int q = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    float scale = d * static_cast<float>(block[b] & 0xf);
    float minimum = dmin * static_cast<float>(block[b] >> 4);
    out[i] = scale * static_cast<float>(q) - minimum;
  }
}

}  // namespace

void encode_q2_k_block(const float* x, const float* weights, uint8_t* block) {
  KAffineBlock fit = fit_k_affine(x, kSubBlocks, 3, 15, weights);
  for (int b = 0; b < kSubBlocks; ++b) block[b] = static_cast<uint8_t>(fit.scale[b] | fit.minimum[b] << 4);
  std::fill_n(block + 16, 64, uint8_t{0});
  for (int i = 0; i < kValues; ++i) {
    block[16 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>(fit.q[i] << (i % 128 / 32 * 2));
  }
  store_u16(block + 80, fit.d);
  store_u16(block + 82, fit.dmin);
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, decode_block);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n,
                                 [](const float* x, uint8_t* block) { encode_q2_k_block(x, nullptr, block); });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(
      source, n, [](const uint8_t* block) { return !f16_is_finite(block + 80) || !f16_is_finite(block + 82); });
}

void set_level(uint8_t* block, int value, int level) {
  put_bits(block[16 + value / 128 * 32 + value % 32], value % 128 / 32 * 2, 2, level);
}

}  // namespace

extern const Format kQ2K = {
    .name = "q2_k",
    .summary = "2 bits a value, 4-bit scale and minimum for 16, two scales for 256",
    .gguf_type = 10,
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
