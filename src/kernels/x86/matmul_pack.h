// The packed layouts that the AVX2 and AVX-512 matmul kernels read. Rows are packed in panels of `lanes` rows (8 or 16:
// one row a 32-bit lane), so one layout serves one token and many, and each row is summed on its own in a fixed order.
//
// Float panel: for each step of `k_step` columns, `lanes` rows of k_step neighbouring values:
//
//   step 0: | r0: w[0..k_step) | r1: w[0..k_step) | ... | r(lanes-1) |   step 1: | r0: w[k_step..) | ...
//
// Quantized panel: a run of cells, one for each 64 columns (32-value blocks) or 256 columns (super-blocks):
//
//   | group 0 planes | group 1 planes | ... | scales | minimums | sub-scales | sub-minimums |
//
//   A group's 32 columns make 8 vectors W[0..7]; lane r of W[j] holds the levels of row r, columns 4j..4j+3, a byte
//   each (what vpdpbusd eats). With L low bits, plane p (p < L) holds in its bits [L i, L i + L) the low bits of W[p +
//   L i]; with H high bits, H more planes hold them the same way. Rows beyond the matrix and groups beyond the row are
//   zero. scales:       [1 or groups][lanes] f16 (E8M0 bytes for MXFP4); minimums alike, f16 sub-scales:
//   [sub_count][lanes] int8;  sub-minimums: [sub_count][lanes] uint8. Q2_K: one byte, minimum << 4 | scale
//
// Everything here is compiled for the baseline; kernels use only the constexpr geometry.
#pragma once

#include <cstdint>

#include "formats/format.h"
#include "kernels/fold.h"
#include "kernels/kernel_table.h"
#include "kernels/quant_shape.h"

namespace millrace {

struct QuantCell {
  int64_t groups = 0;  // of 32 columns
  int64_t group_bytes = 0;
  int64_t scale_at = 0;
  int64_t min_at = 0;
  int64_t sub_at = 0;
  int64_t sub_min_at = 0;
  int64_t bytes = 0;
};

[[gnu::always_inline]] constexpr QuantCell quant_cell(const QuantShape& shape, int64_t lanes) {
  QuantCell cell;
  cell.groups = shape.per_group_scale() ? 2 : shape.groups;
  cell.group_bytes = lanes * 4 * (shape.low_bits + shape.high_bits);
  int64_t scales = (shape.per_group_scale() ? cell.groups : 1) * lanes;
  cell.scale_at = cell.groups * cell.group_bytes;
  cell.min_at = cell.scale_at + scales * (shape.e8m0 ? 1 : 2);
  cell.sub_at = cell.min_at + (shape.has_min ? scales * 2 : 0);
  cell.sub_min_at = cell.sub_at + shape.sub_count() * lanes;
  cell.bytes = cell.sub_min_at + (shape.has_min && !shape.nibble_subs() ? shape.sub_count() * lanes : 0);
  return cell;
}

[[gnu::always_inline]] constexpr int64_t quant_cells(const QuantCell& cell, int64_t cols) {
  return (cols + cell.groups * 32 - 1) / (cell.groups * 32);
}

// Bytes from one panel to the next: whole cache lines.
[[gnu::always_inline]] constexpr int64_t quant_panel_bytes(const QuantCell& cell, int64_t cols) {
  return (quant_cells(cell, cols) * cell.bytes + 63) / 64 * 64;
}

// The registered format of that name if its activations are of that kind, else null (and its kernel is not added).
const Format* float_format(const char* name, Activation activation);

// Packs rows [row_begin, row_end) of a stored matrix (row_begin a multiple of lanes).
void pack_quant_panels(const QuantSource& source, int lanes, const uint8_t* stored, int64_t rows, int64_t cols,
                       int64_t row_begin, int64_t row_end, uint8_t* packed);

// The same for plain values of value_bytes each; panels are lanes * align(cols, k_step) * value_bytes long.
void pack_value_panels(int value_bytes, int k_step, int lanes, const uint8_t* stored, int64_t rows, int64_t cols,
                       int64_t row_begin, int64_t row_end, uint8_t* packed);

// Bytes of one fold of one FP8 panel (matmul_f8.h), and the packer of these panels.
[[gnu::always_inline]] constexpr int64_t f8_fold_bytes(int64_t lanes) { return (kFoldColumns + 4) * lanes; }
void pack_f8_panels(int lanes, const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols,
                    int64_t row_begin, int64_t row_end, uint8_t* packed);

}  // namespace millrace
