// IQ1_S: 256 values in 8 sub-blocks of 32; 8 values are one of 2048 ternary points, all of a sub-block moved up or down
// by an eighth (iq_block.h). Frozen, on disk:
//
//   byte 0    2               34        50
//        | d  | points, low 8 | 8 x u16 |      d: f16; u16: 4 x 3 high bits of points, s in bits 12-14, bit 15: down
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 50;

}  // namespace

void unpack_iq1_s(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  for (int b = 0; b < 8; ++b) {
    const uint32_t word = load_u16(block + 34 + 2 * b);
    put_scale_twice(out, b, word >> 12 & 7);
    for (int l = 0; l < 4; ++l)
      put_point8(kIq1Grid[block[2 + 4 * b + l] | (word >> (3 * l) & 7) << 8], word & 0x8000 ? 255 : 0,
                 out.code + 32 * b + 8 * l);
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes>(source, destination, n, unpack_iq1_s, kIq1Codes, kIq1Unit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  for (int b = 0; b < 8; ++b) {
    uint32_t word = uint32_t{choice.scale[b]} << 12 | uint32_t{choice.signs[4 * b]} << 15;
    for (int l = 0; l < 4; ++l) {
      block[2 + 4 * b + l] = static_cast<uint8_t>(choice.point[4 * b + l]);
      word |= choice.point[4 * b + l] >> 8 << (3 * l);
    }
    store_u16(block + 34 + 2 * b, static_cast<uint16_t>(word));
  }
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq1Grid,
                     .count = 2048,
                     .codes = kIq1Codes,
                     .unit = kIq1Unit,
                     .signs = IqSigns::shift,
                     .shifted = 32,
                     .scale_values = 32,
                     .most_scale = 15},
                    store);
}

}  // namespace

extern const Format kIq1S = {
    .name = "iq1_s",
    .summary = "1.56 bits a value: 8 are one of 2048 ternary points, 3-bit scales for 32",
    .gguf_type = 19,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
