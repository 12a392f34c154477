// IQ3_XXS: 256 values in 8 sub-blocks of 32; 4 values are one of 256 points, and 8 have an even number of minus signs
// (iq_block.h). Frozen, on disk:
//
//   byte 0    2           66          98
//        | d  | 64 points | 8 x word  |      d: f16; word: 4 x 7 signs from bit 0 on, s in bits 28-31
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 98;

}  // namespace

void unpack_iq3_xxs(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  for (int b = 0; b < 8; ++b) {
    const uint32_t word = load_u32(block + 66 + 4 * b);
    out.scale[b] = odd_scale(word >> 28);
    for (int l = 0; l < 4; ++l) {
      const uint8_t* points = block + 2 + 8 * b + 2 * l;
      put_points4(kIq3XxsGrid[points[0]], kIq3XxsGrid[points[1]], even_signs(word >> (7 * l) & 127),
                  out.code + 32 * b + 8 * l);
    }
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes, 32>(source, destination, n, unpack_iq3_xxs, kIq3XxsCodes, kIq3XxsUnit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  for (int i = 0; i < 64; ++i) block[2 + i] = static_cast<uint8_t>(choice.point[i]);
  for (int b = 0; b < 8; ++b) {
    uint32_t word = uint32_t{choice.scale[b]} << 28;
    for (int l = 0; l < 4; ++l) word |= (choice.signs[4 * b + l] & 127u) << (7 * l);
    store_u32(block + 66 + 4 * b, word);
  }
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq3XxsGrid,
                     .count = 256,
                     .digits = 4,
                     .codes = kIq3XxsCodes,
                     .unit = kIq3XxsUnit,
                     .signs = IqSigns::even,
                     .scale_values = 32},
                    store);
}

}  // namespace

extern const Format kIq3Xxs = {
    .name = "iq3_xxs",
    .summary = "3.06 bits a value: 4 are one of 256 points, 4-bit scales for 32",
    .gguf_type = 18,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
