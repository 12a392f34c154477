// Packs matrices whose indices select words of eight weights (codebook_products.h); compiled without the kernels'
// flags. Panels have kCodewordRows rows and cells of 64 columns. The words themselves remain in the Codebook:
//
//   | scales, f32 [32] | cell | cell | ... |     cell: [8 columns][book][32] indices of 1 or 2 bytes
//
// The index of row r is at place codeword_at(r) of 32, so that rows are in order after bytes are widened twice. Rows
// beyond the matrix and columns beyond the row have the index 0; the inputs of such columns are zero.
#pragma once

#include <cstdint>

namespace millrace {

struct Codebook;

inline constexpr int64_t kCodewordRows = 32;
inline constexpr int64_t kCodewordColumns = 8;       // columns of a word
inline constexpr int64_t kCodewordCellColumns = 64;  // the multiple to which inputs are padded
inline constexpr int64_t kCodewordCellsAt = kCodewordRows * 4;

[[gnu::always_inline]] constexpr int64_t codeword_at(int64_t row) { return row % 8 * 4 + row / 8; }
[[gnu::always_inline]] constexpr int64_t codeword_index_bytes(int bits) { return bits > 8 ? 2 : 1; }
// Returns the bytes of the indices of eight columns.
[[gnu::always_inline]] constexpr int64_t codeword_step_bytes(int bits, int books) {
  return books * kCodewordRows * codeword_index_bytes(bits);
}
[[gnu::always_inline]] constexpr int64_t codeword_panel_bytes(int bits, int books, int64_t cols) {
  return kCodewordCellsAt +
         (cols + kCodewordCellColumns - 1) / kCodewordCellColumns * 8 * codeword_step_bytes(bits, books);
}

// The words of a matrix: [books][1 << bits][8].
struct CodewordTables {
  const int8_t* words = nullptr;
  int bits = 0;
  int books = 0;
};
CodewordTables codeword_tables(const Codebook& book);

bool takes_codewords(const Codebook& book);
int64_t codewords_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_codewords(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                    uint8_t* packed);

}  // namespace millrace
