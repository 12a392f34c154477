// QuantShape: the description of a quantized weight format for matmul kernels. QuantBlock: one stored block, split into
// integer levels and scales. Every instruction set computes the same result from them:
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
// The activation row (kernels/activation.h) has unit, shift, scale, the sums and the int8 x. The dots of x with (level
// - offset), or with table[level], are exact integers. So all instruction sets agree bit for bit.
//
// If a format's levels and scales fit the shape of another format, the other format carries it (QuantSource::carrier):
// its blocks are split into panels of the carrier, with other codes and another unit. Sources: GGUF's documentation of
// block formats; OCP Microscaling (MX) v1.0 for MXFP4.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

struct Format;       // formats/format.h
struct BlockScales;  // tensor/weight.h

enum class SubScales : uint8_t { none, per32, per16 };
// codes: 16 values defined by the format, in the head of each panel; fp4: the values of MXFP4.
enum class LevelTable : uint8_t { none, codes, fp4 };

struct QuantShape {
  int low_bits = 0;         // low bits of a level, stored as one plane of 1, 2, 4 or 8 bits
  int high_bits = 0;        // bits above these, stored as a second plane of 0, 1 or 2 bits
  bool shared_bit = false;  // true: one more bit above these, which each eight columns share
  // True: four levels of each eight columns are stored, the others are 0 (formats/four_of_eight.h).
  bool four_of_eight = false;
  int step = 1;  // a power of two; a level is the stored bits times this
  // A power of two that is subtracted from a level, or added to the table's entries to make them unsigned.
  int offset = 0;
  LevelTable table = LevelTable::none;
  SubScales sub = SubScales::none;
  bool has_min = false;
  bool e8m0 = false;  // true: the scale is a power of two in one byte; false: f16
  bool e4m3 = false;  // true: sub-scales are 8-bit floats, blocks have no scale, and matrices may have one
  int sub_bits = 0;   // bits of a sub-scale or sub-minimum: 4, 6 or 8 (int8; e4m3)
  int sub_bias = 0;   // added to a sub-scale to make it unsigned when packed
  int groups = 1;     // number of groups of 32 values in a block

  constexpr int code_bits() const { return low_bits + high_bits + (shared_bit ? 1 : 0); }
  constexpr bool whole_bytes() const { return low_bits == 8 && !four_of_eight; }
  constexpr bool exact_scales() const { return low_bits == 8; }  // Activation::q8, else q8_shift
  constexpr bool per_group_scale() const { return groups == 1; }
  constexpr int sub_count() const { return sub == SubScales::none ? 0 : sub == SubScales::per32 ? groups : 2 * groups; }
  // Number of sub-scales and sub-minimums in a block, and in a group.
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
inline constexpr int kCarriedCount = 12;  // number of carried formats, which follow these in quant_source_at()

// The E2M1 values, multiplied by 2.
inline constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct QuantBlock {
  alignas(16) uint8_t level[256];  // [groups * 32], unsigned as stored; for formats with a table, its indices
  uint16_t d = 0;                  // scale: f16 bits, or the E8M0 byte; none with e4m3
  uint16_t min = 0;                // f16 bits; it is subtracted, so the m of q4_1 and q5_1 has the opposite sign
  int8_t scale[16];                // [sub_count]; with e4m3, the argument of e4m3_in_f16()
  uint8_t minimum[16];             // [sub_count]
};

// Describes how stored blocks of one format are split.
struct QuantSource {
  std::string_view format;  // Format::name
  QuantShape shape;
  void (*split)(const uint8_t* block, QuantBlock& out);
  // Splits everything except the levels; null if a block has no sub-scales. Such a block begins with d, followed by
  // min.
  void (*split_scales)(const uint8_t* block, QuantBlock& out) = nullptr;
  const int8_t* codes = nullptr;  // [16], values of LevelTable::codes
  float unit = 1;                 // unit of the format
  // Index in kQuantShapes of the format that carries this one; -1: none. IQ2_S and E8P carry themselves, because their
  // blocks have no bit fields and are split before they are packed. If a block has more groups than the carrier's
  // (E8P_4 on Q8_0), it is packed as several of the carrier's blocks, with the same scale.
  int carrier = -1;
};

const QuantSource* quant_source_at(int index);  // in the order of kQuantShapes, then the carried formats
const Format* quant_format_at(int index);       // null if the format is not registered

// Returns 2^(e - 128), the E8M0 scale of doubled E2M1 values; NaN for 255.
float e8m0_half_to_f32(uint8_t e);

// For shapes with e4m3: returns the scale of the whole matrix; 1 if there is none.
float matrix_scale(const BlockScales* scales);

// Returns the bits of the f16 with 2^-8 times the value of an unsigned E4M3; NaN for 0xff.
constexpr uint16_t e4m3_in_f16(uint8_t byte) { return static_cast<uint16_t>(byte << 7); }

}  // namespace millrace
