// Packing for the vector kernels of codebooks (codebook_rows.h), compiled without their flags.
#pragma once

#include <cstdint>

namespace millrace {

struct Codebook;

bool takes_any_codebook(const Codebook& book);
int64_t codebook_rows_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_codebook_rows(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                        uint8_t* packed);
// Of one packed row, columns [begin, end), and zeros up to a multiple of 16.
void decode_codebook_row(const Codebook& book, const uint8_t* packed, int64_t row, int64_t cols, int64_t begin,
                         int64_t end, float* out);

// A row of a codebook whose indices, of 8 or 16 bits, name eight weights each, with one table for the row: such as AQLM
// stores. Kernels decode these with their own vectors.
struct CodebookEights {
  const uint16_t* entries = nullptr;  // [books][1 << bits][8], f16; null: the codebook is another
  int bits = 0;
  int books = 0;
  float scale = 1;
};
CodebookEights codebook_eights(const Codebook& book, int64_t row);

// Packed panels of kPanelRows rows with tables of at most 16 weights; each row's indices have 2, 3 or 4 bits:
//
//   | levels of the tables, int8 | scales, f32 [32] | cell of 64 columns | cell | ... |
//
// A vector of 64 bytes has 16 bytes for each of four rows: vector q of a part (16 rows) has rows q, q + 4, q + 8 and
// q + 12 of it. Four-byte words of four such vectors, transposed, are then vectors with a row in each lane. The 16
// bytes are a row's levels, or indices of 16 columns, with those of other 16 columns in the bits above:
//
//   levels         [part][q]
//   cell, 4 bits   [group of 32 columns][part][q]   byte j: columns j, j + 16 of the group
//         2 bits   [part][q]                        byte j: columns j, j + 16, j + 32, j + 48 of the cell
//         3 bits   the low two bits as with 2 bits, then the third ones: [q], byte j: the same columns of part 0, and
//                  above them of part 1
//
// Rows beyond the matrix and columns beyond the row have the index 0. Indices of 1 bit take 2.
inline constexpr int64_t kTable16Rows = 32;
inline constexpr int64_t kTable16ScalesAt = kTable16Rows * 16;
inline constexpr int64_t kTable16CellsAt = kTable16ScalesAt + kTable16Rows * 4;
inline constexpr int64_t kTable16CellColumns = 64;

[[gnu::always_inline]] constexpr int64_t table16_cell_bytes(int bits) { return kTable16Rows * 8 * bits; }
[[gnu::always_inline]] constexpr int64_t table16_panel_bytes(int bits, int64_t cols) {
  return kTable16CellsAt + (cols + kTable16CellColumns - 1) / kTable16CellColumns * table16_cell_bytes(bits);
}

int table16_bits(const Codebook& book);  // of a packed index
bool takes_table16(const Codebook& book);
int64_t table16_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed);

}  // namespace millrace
