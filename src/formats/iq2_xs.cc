// IQ2_XS: 256 values in 16 sub-blocks of 16; 8 values are one of 512 points with an even number of minus signs
// (iq_block.h). Frozen, on disk:
//
//   byte 0    2            66            74
//        | d  | 32 x u16   | s1|s0 ...   |      d: f16; u16: the point in bits 0-8, 7 signs above; s: 4 bits
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 74;

}  // namespace

void unpack_iq2_xs(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd_scale(block[66 + i / 2] >> (i % 2 * 4) & 15);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = load_u16(block + 2 + 2 * l);
    put_point8(kIq2XsGrid[word & 511], even_signs(word >> 9), out.code + 8 * l);
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes>(source, destination, n, unpack_iq2_xs, kIq2Codes, kIq2Unit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  for (int l = 0; l < 32; ++l)
    store_u16(block + 2 + 2 * l, static_cast<uint16_t>(choice.point[l] | (choice.signs[l] & 127) << 9));
  for (int i = 0; i < 8; ++i) block[66 + i] = static_cast<uint8_t>(choice.scale[2 * i] | choice.scale[2 * i + 1] << 4);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq2XsGrid, .count = 512, .codes = kIq2Codes, .unit = kIq2Unit, .signs = IqSigns::even},
                    store);
}

}  // namespace

extern const Format kIq2Xs = {
    .name = "iq2_xs",
    .summary = "2.31 bits a value: 8 are one of 512 points, 4-bit scales for 16",
    .gguf_type = 17,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
