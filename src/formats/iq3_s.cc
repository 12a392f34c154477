// IQ3_S: 256 values in 8 sub-blocks of 32; 4 values are one of 512 points, with any signs (iq_block.h). Frozen, on
// disk:
//
//   byte 0    2               66              74         106         110
//        | d  | points, low 8 | points, bit 8 | 32 signs | s1|s0 ... |      d: f16; s: 4 bits
#include "formats/format.h"
#include "formats/iq_grids.h"
#include "formats/iq_rounding.h"

namespace millrace {
namespace {

constexpr int kBytes = 110;

}  // namespace

void unpack_iq3_s(const uint8_t* block, IqBlock& out) {
  out.d = load_u16(block);
  const auto point = [&](int i) { return kIq3SGrid[block[2 + i] | (block[66 + i / 8] >> (i % 8) & 1) << 8]; };
  for (int b = 0; b < 8; ++b) out.scale[b] = odd_scale(block[106 + b / 2] >> (b % 2 * 4) & 15);
  for (int l = 0; l < 32; ++l) put_points4(point(2 * l), point(2 * l + 1), block[74 + l], out.code + 8 * l);
}

namespace {

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_iq<kBytes, 32>(source, destination, n, unpack_iq3_s, kIq3SCodes, kIq3SUnit);
}

void store(const IqChoice& choice, uint8_t* block) {
  store_u16(block, choice.d);
  std::fill_n(block + 66, 8, uint8_t{0});
  for (int i = 0; i < 64; ++i) {
    block[2 + i] = static_cast<uint8_t>(choice.point[i]);
    put_bits(block[66 + i / 8], i % 8, 1, choice.point[i] >> 8);
  }
  std::copy_n(choice.signs, 32, block + 74);
  for (int i = 0; i < 4; ++i) block[106 + i] = static_cast<uint8_t>(choice.scale[2 * i] | choice.scale[2 * i + 1] << 4);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_iq<kBytes>(source, destination, n,
                    {.points = kIq3SGrid,
                     .count = 512,
                     .digits = 4,
                     .codes = kIq3SCodes,
                     .unit = kIq3SUnit,
                     .signs = IqSigns::free,
                     .scale_values = 32},
                    store);
}

}  // namespace

extern const Format kIq3S = {
    .name = "iq3_s",
    .summary = "3.44 bits a value: 4 are one of 512 points, 4-bit scales for 32",
    .gguf_type = 21,
    .safetensors = "",
    .block_values = kIqValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_iq_non_finite<kBytes>,
};

}  // namespace millrace
