// Packs matrices with tables of at most 16 weights (codebook_products.h); compiled without the kernels' flags. A panel
// has kTable16Rows rows, whose indices have 2, 3 or 4 bits. A row has one table, or one for every 1, 2, ... groups of
// 32 columns.
//
//   | table | cell of 64 columns | cell | ... | table | cell | ...      a table before the cell in which it begins
//
//   table          | levels, int8 [part of 16 rows][2^bits / 4 vectors] | scales, f32 [32] |
//   cell, 4 bits   [group of 32 columns][part][q]   byte j: columns j, j + 16 of the group
//         3 bits   low two bits [part][q]           byte j: columns j, j + 16, j + 32, j + 48 of the cell
//                  third ones [q]                   byte j: the same columns of part 0, and above them of part 1
//         2 bits   [group][2 planes][row]           as q2_0 has them (matmul_pack.h): byte k of plane p has columns
//                                                   4 p + k, 4 p + k + 8 ... of the group
//
// A vector has 64 bytes, in lanes of 16 bytes. Lane i belongs to rows 4 i to 4 i + 3 of the part. In a table, it has
// the levels of these rows, one after the other, in one or more vectors. In vector q of a cell, it has the indices of
// row 4 i + q. So if four vectors of a cell are looked up and their four-byte words are transposed, each lane has a
// row. With 2 bits, a lane of a table and a lane of a plane have the same four rows, and no transposition is needed.
//
// Rows beyond the matrix and columns beyond the row have the index 0. Indices of 1 bit are stored in 2 bits.
#pragma once

#include <cstdint>

namespace millrace {

struct Codebook;

inline constexpr int64_t kTable16Rows = 32;
inline constexpr int64_t kTable16CellColumns = 64;

[[gnu::always_inline]] constexpr int64_t table16_cell_bytes(int bits) { return kTable16Rows * 8 * bits; }
[[gnu::always_inline]] constexpr int64_t table16_levels_bytes(int bits) { return kTable16Rows << bits; }
[[gnu::always_inline]] constexpr int64_t table16_table_bytes(int bits) {
  return table16_levels_bytes(bits) + kTable16Rows * 4;
}
// Returns the byte offset of a row's levels in a table.
constexpr int64_t table16_levels_at(int bits, int64_t row) {
  const int64_t part = row / 16, lane = row % 16 / 4, byte = row % 4 << bits;
  return part * (16 << bits) + byte / 16 * 64 + lane * 16 + byte % 16;
}

// The offsets of a panel's tables and cells.
struct Table16Panel {
  int bits = 0;
  int64_t cells = 0;
  int64_t groups = 0;  // groups of 32 columns that share a table

  // Returns the number of tables that begin before `group`.
  constexpr int64_t tables_before(int64_t group) const { return (group + groups - 1) / groups; }
  constexpr int64_t tables() const { return tables_before(2 * cells); }
  constexpr int64_t cell_at(int64_t cell) const {
    return cell * table16_cell_bytes(bits) + tables_before(2 * cell + 2) * table16_table_bytes(bits);
  }
  constexpr int64_t table_at(int64_t table) const {
    return table * groups / 2 * table16_cell_bytes(bits) + table * table16_table_bytes(bits);
  }
  constexpr int64_t bytes() const { return cells * table16_cell_bytes(bits) + tables() * table16_table_bytes(bits); }
};

Table16Panel table16_panel(const Codebook& book, int64_t cols);
bool takes_table16(const Codebook& book);
int64_t table16_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed);

}  // namespace millrace
