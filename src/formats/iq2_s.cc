// IQ2_S: 256 values in 16 sub-blocks of 16; 8 values are one of 1024 points with any signs (iq_block.h). Frozen, on
// disk:
//
//   byte 0    2               34         66               74          82
//        | d  | points, low 8 | 32 signs | points, high 2 | s1|s0 ... |      d: f16; s: 4 bits
//
//   Bits 2l and 2l + 1 of byte b of the high parts belong to point 4b + l.
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 82;

}  // namespace

void unpack_iq2_s(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  for (int i = 0; i < 16; ++i) out.scale[i] = odd_scale(block[74 + i / 2] >> (i % 2 * 4) & 15);
  for (int l = 0; l < 32; ++l) {
    const int high = block[66 + l / 4] >> (l % 4 * 2) & 3;
    put_point8(kIq2SGrid[block[2 + l] | high << 8], block[34 + l], out.code + 8 * l);
  }
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes>(source, destination, n, unpack_iq2_s, kIq2Codes, kIq2Unit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  std::fill_n(block + 66, 8, uint8_t{0});
  for (int l = 0; l < 32; ++l) {
    block[2 + l] = static_cast<uint8_t>(choice.point[l]);
    block[34 + l] = choice.signs[l];
    put_bits(block[66 + l / 4], l % 4 * 2, 2, choice.point[l] >> 8);
  }
  for (int i = 0; i < 8; ++i) block[74 + i] = static_cast<uint8_t>(choice.scale[2 * i] | choice.scale[2 * i + 1] << 4);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq2SGrid, .count = 1024, .codes = kIq2Codes, .unit = kIq2Unit, .signs = IqSigns::free},
                    store);
}

}  // namespace

extern const Format kIq2S = {
    .name = "iq2_s",
    .summary = "2.56 bits a value: 8 are one of 1024 points, 4-bit scales for 16",
    .gguf_type = 22,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
