// The packed layouts that the vector matmul kernels read. Rows are packed in panels, with one row in each 32-bit lane
// of a vector. So one layout serves one token and many tokens, and each row is summed separately in a fixed order.
//
// A float panel has `lanes` rows (two vectors; one for FP8). Each step of `k_step` columns has `lanes` rows of k_step
// adjacent values:
//
//   step 0: | r0: w[0..k_step) | r1: w[0..k_step) | ... | r(lanes-1) |   step 1: | r0: w[k_step..) | ...
//
// A quantized panel has kPanelRows = 32 rows for any vector width. It is a sequence of cells, one for each 64 columns
// (32-value blocks) or 256 columns (super-blocks). A cell consists of whole cache lines:
//
//   | scales | minimums | fields | high fields | shared bits | group 0 planes | group 1 planes | ... |
//
// This is the order in which a kernel needs the parts, so a matrix is read as one stream of memory.
//
//   planes   A group's 32 columns make 8 wide vectors W[0..7] of 32 lanes (128 bytes); lane r of W[j] holds the levels
//            of row r, columns 4j..4j+3, a byte each (the operand of vpdpbusd). With L low bits, plane p (p < L) holds
//            in its bits [L i, L i + L) the low bits of W[p + L i]; with H high bits, H more planes hold them the same
//            way.
//
//              plane p:  | row 0: 4 bytes | row 1 | ... | row 15 | row 16 | ... | row 31 |
//                        '--- one vector of AVX-512 -------------'
//                        '- one of AVX2 -'...
//
//            In shapes with four_of_eight, plane 0 holds the bits of the columns that are stored, a word a row. The
//            other planes hold the 16 stored values: with 8 bits, plane 1 + p those of columns 8p .. 8p + 7; with 4
//            bits, those in its low nibbles, and those of columns 8p + 16 on in its high nibbles.
//
//   scales   [1 or groups][32] f16 (E8M0 bytes for MXFP4; none with e4m3); minimums likewise, f16.
//   fields   sub-scales and sub-minimums, unsigned (sub_bias added), in the order in which groups use them: with a
//            minimum s0 m0 s1 m1 ... (two of each if a group has two), without one s0 s1 ...: sub_field(). 4 and 6
//            bits: byte [f / 2][32] holds the low nibbles of fields f and f + 1; 6 bits: high-field byte [f / 4][32]
//            holds two more bits of fields f .. f + 3. 8 bits: byte [f][32].
//
//   shared   a word of 32 bits a row; bit 4 g + i is that of columns 8i .. 8i + 7 of group g: QuantShape::shared_bit.
//
// Panels of formats with codes (LevelTable::codes) begin with a head of one cache line: 16 codes, the codes plus 128,
// and the format's unit in f32. Panels of formats with a scale for the matrix (e4m3) have a head without codes; the
// scale is a factor of the unit.
//
// Rows beyond the matrix and groups beyond the row are zero.
//
// Everything here is compiled for the baseline; kernels use only the constexpr geometry.
#pragma once

#include <cstdint>

#include "formats/format.h"
#include "kernels/fold.h"
#include "kernels/kernel_table.h"
#include "kernels/quant_shape.h"

namespace millrace {

inline constexpr int64_t kPanelRows = 32;
inline constexpr int64_t kRaisedCodesAt = 16;  // offset in a panel's head
inline constexpr int64_t kFormatUnitAt = 32;

struct QuantCell {
  int64_t head_bytes = 0;  // bytes of the panel's head, before its cells
  int64_t groups = 0;      // groups of 32 columns
  int64_t planes = 0;
  int64_t plane_bytes = 0;  // bytes of one plane of one group
  int64_t group_bytes = 0;
  // Byte offsets in the cell; the scales are at offset 0.
  int64_t min_at = 0;
  int64_t field_at = 0;
  int64_t high_field_at = 0;
  int64_t shared_at = 0;
  int64_t planes_at = 0;
  int64_t bytes = 0;
};

[[gnu::always_inline]] constexpr QuantCell quant_cell(const QuantShape& shape) {
  QuantCell cell;
  cell.head_bytes = shape.table == LevelTable::codes || shape.e4m3 ? 64 : 0;
  cell.groups = shape.per_group_scale() ? 2 : shape.groups;
  cell.plane_bytes = kPanelRows * 4;
  cell.planes = shape.four_of_eight ? 1 + shape.low_bits / 2 : shape.low_bits + shape.high_bits;
  cell.group_bytes = cell.plane_bytes * cell.planes;
  int64_t scales = shape.e4m3 ? 0 : (shape.per_group_scale() ? cell.groups : 1) * kPanelRows;
  cell.min_at = scales * (shape.e8m0 ? 1 : 2);
  cell.field_at = cell.min_at + (shape.has_min ? scales * 2 : 0);
  int64_t fields = shape.sub_fields() * kPanelRows;
  cell.high_field_at = cell.field_at + (shape.sub_bits == 8 ? fields : fields / 2);
  cell.shared_at = cell.high_field_at + (shape.sub_bits == 6 ? fields / 4 : 0);
  cell.planes_at = cell.shared_at + (shape.shared_bit ? kPanelRows * 4 : 0);
  cell.bytes = cell.planes_at + cell.groups * cell.group_bytes;
  return cell;
}

// Returns the field of sub-scale (or sub-minimum) i of a block.
[[gnu::always_inline]] constexpr int sub_field(const QuantShape& shape, int i, bool minimum) {
  if (!shape.has_min) return i;
  if (shape.sub == SubScales::per32) return 2 * i + (minimum ? 1 : 0);
  return i / 2 * 4 + i % 2 + (minimum ? 2 : 0);
}

[[gnu::always_inline]] constexpr int64_t quant_cells(const QuantCell& cell, int64_t cols) {
  return (cols + cell.groups * 32 - 1) / (cell.groups * 32);
}

// Returns the bytes of a panel, a multiple of the cache line.
[[gnu::always_inline]] constexpr int64_t quant_panel_bytes(const QuantCell& cell, int64_t cols) {
  return cell.head_bytes + quant_cells(cell, cols) * cell.bytes;
}

// Returns the registered format with this name if it uses this activation; otherwise null, and its kernel is not
// registered.
const Format* float_format(const char* name, Activation activation);

// Packs rows [row_begin, row_end) of a stored matrix. row_begin: a multiple of kPanelRows. `source`: the format's index
// in quant_source_at(). `scales`: may be null.
void pack_quant_panels(int source, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin,
                       int64_t row_end, uint8_t* packed, const BlockScales* scales = nullptr);

// Variant for plain values of value_bytes each. A panel has lanes * align(cols, k_step) * value_bytes bytes.
void pack_value_panels(int value_bytes, int k_step, int lanes, const uint8_t* stored, int64_t rows, int64_t cols,
                       int64_t row_begin, int64_t row_end, uint8_t* packed);

// Bytes of a fold in an FP8 panel (matmul_f8.h). pack_f8_panels() packs these panels.
[[gnu::always_inline]] constexpr int64_t f8_fold_bytes(int64_t lanes) { return (kFoldColumns + 4) * lanes; }
void pack_f8_panels(int lanes, const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols,
                    int64_t row_begin, int64_t row_end, uint8_t* packed);

// Adds kernels for the carried formats: the kernels of their carriers, with other packing functions.
void add_carried_kernels(KernelTable& table);

}  // namespace millrace
