// QuantShape: what a matmul kernel needs to know about a quantized weight format, as data, and QuantBlock: one stored
// block split into integer levels and scales. Every instruction set computes the same result from them:
//
//   y = sum over groups g of 32 columns, in ascending order, in f32 with one rounding per fma:
//     8 bits:       y = fma(d * scale, dot, y)
//     none, per32:  y = fma(dw, dot << shift, y)      dw = d (* sub-scale), exact in f32
//     minimum:      y = fma(-mw, sum, y)              mw = min (* sub-minimum), exact in f32
//     per16:        u = fma(d * s1, dot1, d * s0 * dot0)          d * s exact in f32
//       e4m3        u = fma(s1, dot1, s0 * dot0)                    s * dot exact in f32
//       minimum     u = fma(-min, m0 * sum0 + m1 * sum1, u)       an exact integer
//                   y = fma(scale, u, y)
//   and at the end  y = y * (unit * format unit)       NVFP4: format unit * scale of the matrix
//
// where unit, shift, scale, the sums and the int8 x are read from the activation row (kernels/activation.h) and the
// dots are exact integers of (level - offset), or of table[level], with x. So ref, AVX2 and AVX-512 agree bit for bit.
//
// A format whose levels and scales fit the shape of another format is carried by that format: kernels see the other
// format's panels, into which the blocks are split (QuantSource::carrier). Only their codes and their unit differ.
// Formats: docs of GGUF's block formats; OCP Microscaling (MX) v1.0 for MXFP4.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

struct Format;       // formats/format.h
struct BlockScales;  // tensor/weight.h

enum class SubScales : uint8_t { none, per32, per16 };
// codes: 16 values of the format's own, at the head of each panel; fp4: those of MXFP4.
enum class LevelTable : uint8_t { none, codes, fp4 };

struct QuantShape {
  int low_bits = 0;            // bits of a level, stored as one plane of 1, 2, 4 or 8 bits ...
  int high_bits = 0;           // ... and a second plane of 0, 1 or 2 bits above it
  bool shared_bit = false;     // ... and one more bit above these, which each eight columns share
  bool four_of_eight = false;  // four levels of eight columns are stored, the others 0: formats/four_of_eight.h
  int step = 1;                // times the stored bits: 2^n; the level
  int offset = 0;              // subtracted from a level, or added to the table's entries to make them unsigned; 2^n
  LevelTable table = LevelTable::none;
  SubScales sub = SubScales::none;
  bool has_min = false;
  bool e8m0 = false;  // the scale is a power of two in one byte; otherwise f16
  bool e4m3 = false;  // sub-scales are floats of 8 bits, blocks have no scale, and matrices may have one
  int sub_bits = 0;   // bits of a sub-scale or sub-minimum: 4, 6 or 8 (int8; e4m3)
  int sub_bias = 0;   // added to a sub-scale to make it unsigned when packed
  int groups = 1;     // groups of 32 values in a block

  constexpr int code_bits() const { return low_bits + high_bits + (shared_bit ? 1 : 0); }
  constexpr bool whole_bytes() const { return low_bits == 8 && !four_of_eight; }
  constexpr bool exact_scales() const { return low_bits == 8; }  // Activation::q8, else q8_shift
  constexpr bool per_group_scale() const { return groups == 1; }
  constexpr int sub_count() const { return sub == SubScales::none ? 0 : sub == SubScales::per32 ? groups : 2 * groups; }
  // Sub-scales and sub-minimums of a block together, and of a group (where there are any).
  constexpr int sub_fields() const { return sub_count() * (has_min ? 2 : 1); }
  constexpr int group_fields() const { return sub_fields() / groups; }
};

// Every quantized format, in the order of quant_source_at().
inline constexpr QuantShape kQuantShapes[] = {
    /* q8_0 */ {.low_bits = 8, .offset = 128},
    /* q4_0 */ {.low_bits = 4, .offset = 8},
    /* q4_1 */ {.low_bits = 4, .has_min = true},
    /* q5_0 */ {.low_bits = 4, .high_bits = 1, .offset = 16},
    /* q5_1 */ {.low_bits = 4, .high_bits = 1, .has_min = true},
    /* q2_k */ {.low_bits = 2, .sub = SubScales::per16, .has_min = true, .sub_bits = 4, .groups = 8},
    /* q3_k */
    {.low_bits = 2, .high_bits = 1, .offset = 4, .sub = SubScales::per16, .sub_bits = 6, .sub_bias = 32, .groups = 8},
    /* q4_k */ {.low_bits = 4, .sub = SubScales::per32, .has_min = true, .sub_bits = 6, .groups = 8},
    /* q5_k */ {.low_bits = 4, .high_bits = 1, .sub = SubScales::per32, .has_min = true, .sub_bits = 6, .groups = 8},
    /* q6_k */ {.low_bits = 4, .high_bits = 2, .offset = 32, .sub = SubScales::per16, .sub_bits = 8, .groups = 8},
    /* iq4_nl */ {.low_bits = 4, .offset = 128, .table = LevelTable::codes},
    /* iq4_xs */
    {.low_bits = 4,
     .offset = 128,
     .table = LevelTable::codes,
     .sub = SubScales::per32,
     .sub_bits = 6,
     .sub_bias = 32,
     .groups = 8},
    /* mxfp4 */ {.low_bits = 4, .offset = 16, .table = LevelTable::fp4, .e8m0 = true},
    /* iq2_s */
    {.low_bits = 2,
     .high_bits = 1,
     .offset = 128,
     .table = LevelTable::codes,
     .sub = SubScales::per16,
     .sub_bits = 6,
     .sub_bias = 32,
     .groups = 8},
    /* nvfp4 */
    {.low_bits = 4,
     .offset = 16,
     .table = LevelTable::fp4,
     .sub = SubScales::per16,
     .e4m3 = true,
     .sub_bits = 8,
     .groups = 2},
    /* q1_0 */ {.low_bits = 1, .step = 2, .offset = 1, .groups = 4},
    /* q2_0 */ {.low_bits = 2, .offset = 1, .groups = 2},
    /* e8p */
    {.low_bits = 2, .high_bits = 1, .shared_bit = true, .offset = 128, .table = LevelTable::codes, .groups = 8},
    /* q2_g64 */ {.low_bits = 2, .has_min = true, .groups = 2},
    /* q2_g128 */ {.low_bits = 2, .has_min = true, .groups = 4},
    /* q3_g64 */ {.low_bits = 2, .high_bits = 1, .has_min = true, .groups = 2},
    /* q3_g128 */ {.low_bits = 2, .high_bits = 1, .has_min = true, .groups = 4},
    /* q8_4of8 */ {.low_bits = 8, .four_of_eight = true, .offset = 128},
    /* q4_4of8 */ {.low_bits = 4, .four_of_eight = true, .offset = 8},
};
inline constexpr int kQuantSourceCount = 24;
inline constexpr int kCarriedCount = 12;  // formats behind these in quant_source_at()

// Twice the E2M1 values.
inline constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct QuantBlock {
  alignas(16) uint8_t level[256];  // [groups * 32], as stored: unsigned, table codes for formats with a table
  uint16_t d = 0;                  // scale: f16 bits, or the E8M0 byte; none with e4m3
  uint16_t min = 0;                // f16 bits; SUBTRACTED per unit (the sign of q4_1's and q5_1's m is flipped)
  int8_t scale[16];                // [sub_count]; e4m3: the byte, as e4m3_in_f16() takes it
  uint8_t minimum[16];             // [sub_count]
};

// How a stored block of one format is split.
struct QuantSource {
  std::string_view format;  // Format::name
  QuantShape shape;
  void (*split)(const uint8_t* block, QuantBlock& out);
  // Everything except the levels; null if a block has no sub-scales (d comes first then, followed by min).
  void (*split_scales)(const uint8_t* block, QuantBlock& out) = nullptr;
  const int8_t* codes = nullptr;  // [16] of LevelTable::codes
  float unit = 1;                 // unit of the format
  // In kQuantShapes: the format that carries this one; -1: none. IQ2_S and E8P carry themselves: their blocks are no
  // planes of bits, and are split before they are packed. Blocks of more groups than the carrier's (E8P_4 on Q8_0) are
  // packed as several of its blocks, with the same scale.
  int carrier = -1;
};

const QuantSource* quant_source_at(int index);  // in the order of kQuantShapes, then the carried ones
const Format* quant_format_at(int index);       // null where the format is not registered

// 2^(e - 128): the E8M0 scale of doubled E2M1 values. 255 is NaN.
float e8m0_half_to_f32(uint8_t e);

// For shapes with e4m3: the scale of the whole matrix; 1 without one.
float matrix_scale(const BlockScales* scales);

// Bits of an unsigned E4M3, shifted, are those of the f16 that is 2^-8 times its value; 0xff is NaN.
constexpr uint16_t e4m3_in_f16(uint8_t byte) { return static_cast<uint16_t>(byte << 7); }

}  // namespace millrace
