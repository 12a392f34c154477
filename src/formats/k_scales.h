// Packs and unpacks the 6-bit scales of the K formats' sub-blocks, 12 bytes a block. Pure functions. Both packings are
// frozen.
//
// Q4_K, Q5_K: 8 scales s and 8 minima m, unsigned.
//
//   byte i = 0..3    | s[i+4] bits 5..4 | s[i] bits 5..0 |
//   byte 4 + i       | m[i+4] bits 5..4 | m[i] bits 5..0 |
//   byte 8 + i       | m[i+4] bits 3..0 | s[i+4] bits 3..0 |
//
// Q3_K: 16 scales s.
//
//   byte i = 0..7    | s[i+8] bits 3..0 | s[i] bits 3..0 |
//   byte 8 + i       | s[i+12] bits 5..4 | s[i+8] 5..4 | s[i+4] 5..4 | s[i] 5..4 |      i = 0..3
#pragma once

#include <cstdint>

namespace millrace {

struct KScaleMin {
  uint8_t scale[8];
  uint8_t minimum[8];
};

inline KScaleMin unpack_k_scale_min(const uint8_t* packed) {
  KScaleMin out;
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = packed[i] & 0x3f;
    out.minimum[i] = packed[4 + i] & 0x3f;
    out.scale[i + 4] = static_cast<uint8_t>((packed[8 + i] & 0xf) | packed[i] >> 6 << 4);
    out.minimum[i + 4] = static_cast<uint8_t>(packed[8 + i] >> 4 | packed[4 + i] >> 6 << 4);
  }
  return out;
}

inline void pack_k_scale_min(const KScaleMin& values, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(values.scale[i] | values.scale[i + 4] >> 4 << 6);
    packed[4 + i] = static_cast<uint8_t>(values.minimum[i] | values.minimum[i + 4] >> 4 << 6);
    packed[8 + i] = static_cast<uint8_t>((values.scale[i + 4] & 0xf) | (values.minimum[i + 4] & 0xf) << 4);
  }
}

inline void unpack_q3_k_scales(const uint8_t* packed, uint8_t* scales) {
  for (int i = 0; i < 16; ++i) {
    int low = packed[i % 8] >> (i / 8 * 4) & 0xf;
    int high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
    scales[i] = static_cast<uint8_t>(low | high << 4);
  }
}

inline void pack_q3_k_scales(const uint8_t* scales, uint8_t* packed) {
  for (int i = 0; i < 12; ++i) packed[i] = 0;
  for (int i = 0; i < 16; ++i) {
    packed[i % 8] |= static_cast<uint8_t>((scales[i] & 0xf) << (i / 8 * 4));
    packed[8 + i % 4] |= static_cast<uint8_t>(scales[i] >> 4 << (i / 4 * 2));
  }
}

}  // namespace millrace
