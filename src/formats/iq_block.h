// Shared by the I-quants of 1 to 3 bits. A block has 256 values in sub-blocks of 16 or 32. Each group of 8 (or 4)
// values is a point of a published grid (iq_grids.h), and each sub-block has an odd scale 2 s + 1:
//
//   value = d * unit * (2 s + 1) * codes[code]
//
// A code has a digit of the point in its low bits and a sign bit above. The sign is that of the value (IQ2, IQ3), or
// that of the shift added to all digits of a group (IQ1). Pure functions.
#pragma once

#include "formats/block.h"

namespace millrace {

inline constexpr int kIqValues = 256;

// A block, unpacked to codes and scales. Formats with a scale for 16 values have 16 scales. IQ3 has 8, each for 32
// values. Other formats with a scale for 32 values store each scale twice.
struct IqBlock {
  alignas(16) uint8_t code[kIqValues];
  int8_t scale[16];  // 2 s + 1
  uint16_t d;        // f16
};

inline constexpr int8_t kIq2Codes[16] = {8, 25, 43, 0, -8, -25, -43, 0};
inline constexpr int8_t kIq1Codes[16] = {-7, 1, 9, 0, -9, -1, 7, 0};  // in eighths: digit - 1, plus or minus 1/8
inline constexpr int8_t kIq3XxsCodes[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3SCodes[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr float kIq2Unit = 0.125f, kIq1Unit = 0.125f, kIq3XxsUnit = 0.25f, kIq3SUnit = 1;

void unpack_iq2_xxs(const uint8_t* block, IqBlock& out);
void unpack_iq2_xs(const uint8_t* block, IqBlock& out);
void unpack_iq2_s(const uint8_t* block, IqBlock& out);
void unpack_iq3_xxs(const uint8_t* block, IqBlock& out);
void unpack_iq3_s(const uint8_t* block, IqBlock& out);
void unpack_iq1_s(const uint8_t* block, IqBlock& out);
void unpack_iq1_m(const uint8_t* block, IqBlock& out);

// --- For the formats ---

// Writes the codes of a point of eight values. Bit i of `signs` is the sign of value i.
inline void put_point8(uint32_t point, uint32_t signs, uint8_t* code) {
  for (int i = 0; i < 8; ++i) code[i] = static_cast<uint8_t>((point >> (2 * i) & 3) | (signs >> i & 1) << 2);
}
// Writes the codes of two points of four values.
inline void put_points4(uint32_t first, uint32_t second, uint32_t signs, uint8_t* code) {
  for (int i = 0; i < 8; ++i)
    code[i] = static_cast<uint8_t>(((i < 4 ? first : second) >> (4 * (i % 4)) & 7) | (signs >> i & 1) << 3);
}

// Returns eight signs from the seven stored ones: the number of minus signs is even.
inline uint32_t even_signs(uint32_t seven) { return seven | static_cast<uint32_t>(__builtin_popcount(seven) & 1) << 7; }

inline int8_t odd_scale(uint32_t s) { return static_cast<int8_t>(2 * s + 1); }

// Stores the scale of 32 values as two scales of 16 values.
inline void put_scale_twice(IqBlock& out, int sub_block, uint32_t s) {
  out.scale[2 * sub_block] = out.scale[2 * sub_block + 1] = odd_scale(s);
}

template <int kBytes, int kScaleValues = 16>
void decode_iq(const uint8_t* source, float* destination, int64_t n, void (*unpack)(const uint8_t*, IqBlock&),
               const int8_t (&codes)[16], float unit) {
  decode_blocks<kIqValues, kBytes>(source, destination, n, [&](const uint8_t* bytes, float* out) {
    IqBlock block;
    unpack(bytes, block);
    const float d = f16_to_f32(block.d) * unit;
    for (int i = 0; i < kIqValues; ++i)
      out[i] = d * static_cast<float>(block.scale[i / kScaleValues]) * static_cast<float>(codes[block.code[i]]);
  });
}

// For formats whose blocks begin with the f16 scale: all except IQ1_M.
template <int kBytes>
int64_t find_iq_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kIqValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

}  // namespace millrace
