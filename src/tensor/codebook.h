// Codebook: the weights that the indices of a matrix represent, if the matrix is stored as indices.
//
//   W[r, c] = row_scale[r] * sum over books m of  table[m][ index(r, c / dim, m) ][ c % dim ]
//
// A table serves rows_per_table rows and cols_per_table columns. Methods store:
//
//   SqueezeLLM   one table a row, one book, dim 1           16 or 8 values
//   GPTVQ        tables for blocks of the matrix, dim 2     vectors of two weights
//   AQLM         one table, two books of 256, dim 8         the sum of two vectors, times a scale of the row
//
// A row's indices are a string of bits, lowest first: those of all books for the first dim columns, for the next ones
// and so on; rows begin at whole bytes. Immutable once it is read.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct Codebook {
  int bits = 0;   // bits of an index: 1 to kMaxBits
  int dim = 1;    // consecutive columns that an index names: a power of two up to kMaxDim
  int books = 1;  // up to kMaxBooks
  int64_t rows_per_table = 1;
  int64_t cols_per_table = 0;     // a multiple of dim
  int64_t tables_per_row = 1;     // tables that a row's columns have
  int64_t first_row = 0;          // rows of the first tables that belong to another part of a fused matrix
  std::vector<uint16_t> entries;  // f16: [tables][books][1 << bits][dim], tables of a row side by side
  std::vector<float> row_scales;  // [rows]; empty: 1
  // For round_codewords(): entry = word_scale * word, [books][1 << bits][dim]. Empty: not rounded.
  std::vector<int8_t> words;
  float word_scale = 0;

  static constexpr int kMaxBits = 16;
  static constexpr int kMaxDim = 16;
  static constexpr int kMaxBooks = 8;

  int64_t table_values() const { return (int64_t{books} << bits) * dim; }
  int64_t row_bytes(int64_t cols) const { return (cols / dim * books * bits + 7) / 8; }
  int64_t bytes() const {
    return static_cast<int64_t>(entries.size() * sizeof(uint16_t) + words.size() + row_scales.size() * sizeof(float));
  }
  double bits_per_value() const { return static_cast<double>(bits) * books / dim; }
};

// Index `i` of a row, and its inverse into a row of zeros.
uint32_t codebook_index(const Codebook& book, const uint8_t* row, int64_t i);
void set_codebook_index(const Codebook& book, uint8_t* row, int64_t i, uint32_t index);
// Columns [begin, begin + count) of a row of the matrix, whose indices are at `indices`; both are multiples of dim.
void decode_codebook(const Codebook& book, const uint8_t* indices, int64_t row, int64_t begin, int64_t count,
                     float* out);
// Rounds the entries to 8 bits and keeps them as words. All entries have one scale, chosen so that no sum of one entry
// of each book exceeds int8. Does nothing unless there is one table, its indices have 8, 14, 15 or 16 bits and name
// eight weights, and the errors are within 1/32 of the entries (root mean square).
void round_codewords(Codebook& book);
bool codewords_fit(const Codebook& book);  // but for the number of tables and the errors
// Returns true if kernels multiply words.
bool codebook_is_codewords(const Codebook& book);
// One book of at most 16 single weights, and tables for whole rows or whole groups of kTable16Columns: kernels round
// such a table to 8 bits and keep it in a register.
inline constexpr int64_t kTable16Columns = 32;
bool codebook_is_table16(const Codebook& book);

// A table as kernels multiply it: weight i is level[i] * scale. Entries that the book does not have are zero.
struct Table16 {
  int8_t level[16] = {};
  float scale = 0;
};
// Table `table` of a row, for books that codebook_is_table16() accepts. The largest magnitude is assigned a level from
// 96 to 127, the one with the lowest squared error of all entries. Tables of evenly spaced weights are then exact.
Table16 codebook_table16(const Codebook& book, int64_t row, int64_t table);

}  // namespace millrace
