#include "kernels/x86/matmul_codebook_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/codebook_rows.h"
#include "tensor/codebook.h"

namespace millrace {

bool takes_any_codebook(const Codebook& /*book*/) { return true; }

int64_t codebook_rows_bytes(const Codebook& book, int64_t rows, int64_t cols) { return rows * book.row_bytes(cols); }

void pack_codebook_rows(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                        uint8_t* packed) {
  const int64_t row = book.row_bytes(cols);
  std::memcpy(packed + row_begin * row, stored + row_begin * row, static_cast<size_t>((row_end - row_begin) * row));
}

void decode_codebook_row(const Codebook& book, const uint8_t* packed, int64_t row, int64_t cols, int64_t begin,
                         int64_t end, float* out) {
  decode_codebook(book, packed + row * book.row_bytes(cols), row, begin, end - begin, out);
  std::fill(out + (end - begin), out + (end - begin + 15) / 16 * 16, 0.0f);
}

bool takes_table16(const Codebook& book) { return codebook_is_table16(book); }

int64_t table16_bytes(const Codebook& /*book*/, int64_t rows, int64_t cols) {
  return (rows + kTable16Rows - 1) / kTable16Rows * table16_panel_bytes(cols);
}

void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed) {
  for (int64_t first = row_begin; first < row_end; first += kTable16Rows) {
    uint8_t* panel = packed + first / kTable16Rows * table16_panel_bytes(cols);
    std::memset(panel, 0, static_cast<size_t>(table16_panel_bytes(cols)));
    for (int64_t row = first; row < std::min(row_end, first + kTable16Rows); ++row) {
      uint16_t table[16];
      codebook_table16(book, row, table);
      std::memcpy(panel + (row - first) * kTable16Bytes, table, sizeof table);
      const uint8_t* indices = stored + row * book.row_bytes(cols);
      uint8_t* to = panel + kTable16Rows * kTable16Bytes + (row - first) * kTable16UnitBytes;
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t unit = c / kTable16Columns, in = c % kTable16Columns;
        uint8_t& byte = to[unit * kTable16Rows * kTable16UnitBytes + in % kTable16UnitBytes];
        byte = static_cast<uint8_t>(byte | codebook_index(book, indices, c) << (in / kTable16UnitBytes * 4));
      }
    }
  }
}

}  // namespace millrace
