// The definition of products with a codebook (codebook_products.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "tensor/codebook.h"

namespace millrace {
namespace {

// Adds the product of `count` columns from `begin` on, of rows of int8 under one scale.
void add_group(const int* levels, int64_t count, float scale, const MatmulArgs& a, int64_t row, int64_t token,
               int64_t begin) {
  const uint8_t* const record = a.x + token * a.x_stride + begin / kActivationGroup * kQ8GroupBytes;
  const auto* x = reinterpret_cast<const int8_t*>(record);
  int dot = 0;
  for (int64_t i = 0; i < count; ++i) dot += levels[i] * x[i];
  float& y = a.y[token * a.y_stride + row];
  y = std::fma(scale * *reinterpret_cast<const float*>(record + kQ8ScaleAt), static_cast<float>(dot), y);
}

// ---- table16 ----

int64_t tables_bytes(const Codebook& book) { return book.tables_per_row * static_cast<int64_t>(sizeof(Table16)); }

int64_t table_row_bytes(const Codebook& book, int64_t cols) { return tables_bytes(book) + book.row_bytes(cols); }

int64_t table_bytes(const Codebook& book, int64_t rows, int64_t cols) { return rows * table_row_bytes(book, cols); }

void pack_table(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                uint8_t* packed) {
  const int64_t row_bytes = book.row_bytes(cols);
  for (int64_t row = row_begin; row < row_end; ++row) {
    uint8_t* to = packed + row * table_row_bytes(book, cols);
    for (int64_t i = 0; i < book.tables_per_row; ++i, to += sizeof(Table16)) {
      const Table16 table = codebook_table16(book, row, i);
      std::memcpy(to, &table, sizeof table);
    }
    std::memcpy(to, stored + row * row_bytes, static_cast<size_t>(row_bytes));
  }
}

void run_table(const MatmulArgs& a) {
  const Codebook& book = *a.codebook;
  Table16 table;
  int levels[kActivationGroup];
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const uint8_t* const packed = a.weights + row * table_row_bytes(book, a.cols);
    const uint8_t* const indices = packed + tables_bytes(book);
    for (int64_t t = 0; t < a.tokens; ++t) a.y[t * a.y_stride + row] = 0;
    for (int64_t begin = 0; begin < a.cols; begin += kActivationGroup) {
      const int64_t count = std::min(kActivationGroup, a.cols - begin);
      const int64_t at = book.tables_per_row == 1 ? 0 : begin / book.cols_per_table;
      std::memcpy(&table, packed + at * static_cast<int64_t>(sizeof table), sizeof table);
      for (int64_t i = 0; i < count; ++i) levels[i] = table.level[codebook_index(book, indices, begin + i)];
      for (int64_t t = 0; t < a.tokens; ++t) add_group(levels, count, table.scale, a, row, t, begin);
    }
  }
}

// ---- codewords ----

int64_t word_row_bytes(const Codebook& book, int64_t cols) {
  return static_cast<int64_t>(sizeof(float)) + book.row_bytes(cols);
}

int64_t word_bytes(const Codebook& book, int64_t rows, int64_t cols) { return rows * word_row_bytes(book, cols); }

void pack_words(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                uint8_t* packed) {
  const int64_t row_bytes = book.row_bytes(cols);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float scale = book.word_scale * (book.row_scales.empty() ? 1 : book.row_scales[static_cast<size_t>(row)]);
    uint8_t* const to = packed + row * word_row_bytes(book, cols);
    std::memcpy(to, &scale, sizeof scale);
    std::memcpy(to + sizeof scale, stored + row * row_bytes, static_cast<size_t>(row_bytes));
  }
}

void run_words(const MatmulArgs& a) {
  const Codebook& book = *a.codebook;
  const int64_t row_bytes = word_row_bytes(book, a.cols);
  int levels[kActivationGroup];
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const uint8_t* const packed = a.weights + row * row_bytes;
    float scale = 0;
    std::memcpy(&scale, packed, sizeof scale);
    for (int64_t t = 0; t < a.tokens; ++t) a.y[t * a.y_stride + row] = 0;
    for (int64_t begin = 0; begin < a.cols; begin += kActivationGroup) {
      const int64_t count = std::min(kActivationGroup, a.cols - begin);
      for (int64_t i = 0; i < count; ++i) {
        levels[i] = 0;
        for (int64_t m = 0; m < book.books; ++m) {
          const uint32_t index = codebook_index(book, packed + sizeof scale, (begin + i) / book.dim * book.books + m);
          levels[i] += book.words[static_cast<size_t>(((m << book.bits) + index) * book.dim + i % book.dim)];
        }
      }
      for (int64_t t = 0; t < a.tokens; ++t) add_group(levels, count, scale, a, row, t, begin);
    }
  }
}

}  // namespace

void add_matmul_codebook_ref(KernelTable& table) {
  set_codebook(table, {.format = &table16_indices(),
                       .layout = "table16",
                       .row_tile = 1,
                       .run = run_table,
                       .takes = codebook_is_table16,
                       .codebook_bytes = table_bytes,
                       .pack_codebook = pack_table});
  set_codebook(table, {.format = &codeword_indices(),
                       .layout = "codewords",
                       .row_tile = 1,
                       .run = run_words,
                       .takes = codebook_is_codewords,
                       .codebook_bytes = word_bytes,
                       .pack_codebook = pack_words});
}

}  // namespace millrace
