// IQ1_M: 256 values in 16 sub-blocks of 16; 8 values are one of 2048 ternary points, each moved up or down by an eighth
// (iq_block.h). Frozen, on disk:
//
//   byte 0               32                      48        56
//        | points, low 8 | h1|h0  h3|h2 ...      | 4 x u16 |
//
//   h: the high 3 bits of a point, bit 3: down; u16: 4 x 3 bits of s, above them 4 bits of d (f16), the lowest first
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 56;

uint16_t stored_d(const uint8_t* block) {
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) d |= load_u16(block + 48 + 2 * i) >> 12 << (4 * i);
  return static_cast<uint16_t>(d);
}

}  // namespace

void unpack_iq1_m(const uint8_t* block, IqBlock& out) {
  out.d = stored_d(block);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd_scale(load_u16(block + 48 + i / 4 * 2) >> (i % 4 * 3) & 7u);
  for (int l = 0; l < 32; ++l) {
    const uint32_t high = block[32 + l / 2] >> (l % 2 * 4) & 15u;
    put_point8(kIq1Grid[block[l] | (high & 7) << 8], high & 8 ? 255 : 0, out.code + 8 * l);
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes>(source, destination, n, unpack_iq1_m, kIq1Codes, kIq1Unit);
}

void store(const IqChoice& choice, uint8_t* block) {
  for (int l = 0; l < 32; ++l) {
    block[l] = static_cast<uint8_t>(choice.point[l]);
    put_bits(block[32 + l / 2], l % 2 * 4, 4, choice.point[l] >> 8 | choice.signs[l] << 3);
  }
  for (int i = 0; i < 4; ++i) {
    uint32_t word = (choice.d >> (4 * i) & 15u) << 12;
    for (int j = 0; j < 4; ++j) word |= uint32_t{choice.scale[4 * i + j]} << (3 * j);
    store_u16(block + 48 + 2 * i, static_cast<uint16_t>(word));
  }
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq1Grid,
                     .count = 2048,
                     .codes = kIq1Codes,
                     .unit = kIq1Unit,
                     .signs = IqSigns::shift,
                     .most_scale = 15},
                    store);
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kIqValues, kBytes>(source, n,
                                       [](const uint8_t* block) { return (stored_d(block) & 0x7c00u) == 0x7c00u; });
}

}  // namespace

extern const Format kIq1M = {
    .name = "iq1_m",
    .summary = "1.75 bits a value: 8 are one of 2048 ternary points, 3-bit scales for 16",
    .gguf_type = 29,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
