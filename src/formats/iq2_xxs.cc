// IQ2_XXS: 256 values in 8 sub-blocks of 32; 8 values are one of 256 points with an even number of minus signs
// (iq_block.h). Frozen, on disk:
//
//   byte 0    2                      66
//        | d  | 8 x | p0 p1 p2 p3 | word | |      d: f16; p: points; word: 4 x 7 signs from bit 0 on, s in bits 28-31
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 66;

}  // namespace

void unpack_iq2_xxs(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  for (int b = 0; b < 8; ++b) {
    const uint8_t* points = block + 2 + 8 * b;
    const uint32_t word = load_u32(points + 4);
    put_scale_twice(out, b, word >> 28);
    for (int l = 0; l < 4; ++l)
      put_point8(kIq2XxsGrid[points[l]], even_signs(word >> (7 * l) & 127), out.code + 32 * b + 8 * l);
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes>(source, destination, n, unpack_iq2_xxs, kIq2Codes, kIq2Unit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  for (int b = 0; b < 8; ++b) {
    uint32_t word = uint32_t{choice.scale[b]} << 28;
    for (int l = 0; l < 4; ++l) {
      block[2 + 8 * b + l] = static_cast<uint8_t>(choice.point[4 * b + l]);
      word |= (choice.signs[4 * b + l] & 127u) << (7 * l);
    }
    store_u32(block + 2 + 8 * b + 4, word);
  }
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq2XxsGrid,
                     .count = 256,
                     .codes = kIq2Codes,
                     .unit = kIq2Unit,
                     .signs = IqSigns::even,
                     .scale_values = 32},
                    store);
}

}  // namespace

extern const Format kIq2Xxs = {
    .name = "iq2_xxs",
    .summary = "2.06 bits a value: 8 are one of 256 points, 4-bit scales for 32",
    .gguf_type = 16,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
