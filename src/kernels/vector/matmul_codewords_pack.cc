#include "kernels/vector/matmul_codewords_pack.h"

#include <algorithm>
#include <cstring>

#include "tensor/codebook.h"

namespace millrace {

CodewordTables codeword_tables(const Codebook& book) {
  return {.words = book.words.data(), .bits = book.bits, .books = book.books};
}

bool takes_codewords(const Codebook& book) { return codebook_is_codewords(book); }

int64_t codewords_bytes(const Codebook& book, int64_t rows, int64_t cols) {
  return (rows + kCodewordRows - 1) / kCodewordRows * codeword_panel_bytes(book.bits, book.books, cols);
}

void pack_codewords(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                    uint8_t* packed) {
  const int64_t panel_bytes = codeword_panel_bytes(book.bits, book.books, cols);
  const int64_t index_bytes = codeword_index_bytes(book.bits), indices = cols / kCodewordColumns * book.books;
  for (int64_t first = row_begin; first < row_end; first += kCodewordRows) {
    uint8_t* panel = packed + first / kCodewordRows * panel_bytes;
    std::memset(panel, 0, static_cast<size_t>(panel_bytes));
    for (int64_t row = first; row < std::min(row_end, first + kCodewordRows); ++row) {
      const float scale = book.word_scale * (book.row_scales.empty() ? 1 : book.row_scales[static_cast<size_t>(row)]);
      std::memcpy(panel + (row - first) * 4, &scale, sizeof scale);
      const uint8_t* from = stored + row * book.row_bytes(cols);
      uint8_t* to = panel + kCodewordCellsAt + codeword_at(row - first) * index_bytes;
      for (int64_t i = 0; i < indices; ++i, to += kCodewordRows * index_bytes) {
        const auto index = static_cast<uint16_t>(codebook_index(book, from, i));
        std::memcpy(to, &index, static_cast<size_t>(index_bytes));
      }
    }
  }
}

}  // namespace millrace
