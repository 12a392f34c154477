#include "kernels/vector/packed_scales.h"

#include <cstring>
#include <string_view>

#include "kernels/vector/matmul_pack.h"

namespace millrace {

// Formats that others carry may round their scales when they are packed.
int packed_scales_source(const MatmulKernel& kernel) {
  if (kernel.layout != std::string_view("cells32")) return -1;
  for (int source = 0; source < kQuantSourceCount; ++source)
    if (kernel.format == quant_format_at(source)) return source;
  return -1;
}

bool packed_scales_finite(int source, const uint8_t* packed, int64_t rows, int64_t cols) {
  const QuantShape& shape = kQuantShapes[source];
  const QuantCell cell = quant_cell(shape);
  const int64_t cells = quant_cells(cell, cols);
  // Powers of two and E4M3 numbers are bytes whose only NaN is 255; f16 scales and minimums are adjacent.
  const int64_t bytes_at = shape.e4m3 ? cell.field_at : 0;
  const int64_t bytes = shape.e4m3 ? shape.sub_fields() * kPanelRows : shape.e8m0 ? cell.min_at : 0;
  const int64_t halves = bytes > 0 ? 0 : cell.field_at / 2;
  int found = 0;
  for (int64_t row = 0; row < rows; row += kPanelRows) {
    const uint8_t* at = packed + row / kPanelRows * quant_panel_bytes(cell, cols) + cell.head_bytes;
    for (int64_t c = 0; c < cells; ++c, at += cell.bytes) {
      for (int64_t i = 0; i < bytes; ++i) found |= at[bytes_at + i] == 255;
      for (int64_t i = 0; i < halves; ++i) {
        uint16_t half;
        std::memcpy(&half, at + 2 * i, 2);
        found |= (half & 0x7c00) == 0x7c00;
      }
    }
  }
  return found == 0;
}

}  // namespace millrace
