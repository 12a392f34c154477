// Codebook: the tables of weights for a matrix that is stored as indices into these tables.
//
//   W[r, c] = row_scale[r] * sum over books m of  table[m][ index(r, c / dim, m) ][ c % dim ]
//
// A table serves rows_per_table rows and cols_per_table columns. Methods store:
//
//   SqueezeLLM   one table per row, one book, dim 1         16 or 8 values
//   GPTVQ        tables for blocks of the matrix, dim 2     vectors of two weights
//   AQLM         one table, two books of 256, dim 8         the sum of two vectors, times a scale of the row
//
// A row's indices are a string of bits, lowest bit first: one index per book for the first dim columns, then one index
// per book for the next dim columns, and so on. Rows begin at whole bytes. A codebook is immutable once it is read.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

struct Codebook {
  int bits = 0;   // bits of an index: 1 to kMaxBits
  int dim = 1;    // consecutive columns that one index encodes: a power of two up to kMaxDim
  int books = 1;  // up to kMaxBooks
  int64_t rows_per_table = 1;
  int64_t cols_per_table = 0;     // a multiple of dim
  int64_t tables_per_row = 1;     // tables that serve the columns of one row
  int64_t first_row = 0;          // if the matrix is a part of a fused one: leading rows that belong to another part
  std::vector<uint16_t> entries;  // f16: [tables][books][1 << bits][dim]; tables of a row are adjacent
  std::vector<float> row_scales;  // [rows]; empty: 1
  // Codewords, entries rounded by round_codewords(): entry = word_scale * word, [books][1 << bits][dim]. Empty: none.
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

// Read index `i` of a row, and write it to a row whose bits at `i` are zeros.
uint32_t codebook_index(const Codebook& book, const uint8_t* row, int64_t i);
void set_codebook_index(const Codebook& book, uint8_t* row, int64_t i, uint32_t index);
// Decodes columns [begin, begin + count) of row `row`. `indices`: the row's stored indices. `begin` and `count` are
// multiples of dim.
void decode_codebook(const Codebook& book, const uint8_t* indices, int64_t row, int64_t begin, int64_t count,
                     float* out);
// Rounds the entries to 8 bits and stores them as `words`. All words share one scale; it is chosen so that the sum of
// one word of each book always fits int8. Does nothing unless codewords_fit(), there is one table, and the root mean
// square of the rounding errors is at most 1/32 of that of the entries.
void round_codewords(Codebook& book);
// Returns true if an index has 8, 14, 15 or 16 bits and encodes eight weights.
bool codewords_fit(const Codebook& book);
// Returns true if kernels multiply `words` instead of `entries`.
bool codebook_is_codewords(const Codebook& book);
// Returns true if kernels can round a table to 8 bits and keep it in a register: the book has at most 16 single
// weights, it is the only one, and tables serve whole rows or whole groups of kTable16Columns.
inline constexpr int64_t kTable16Columns = 32;
bool codebook_is_table16(const Codebook& book);

// A table in the form that kernels multiply: weight i is level[i] * scale. Missing entries are zero.
struct Table16 {
  int8_t level[16] = {};
  float scale = 0;
};
// Returns table `table` of a row, for books that codebook_is_table16() accepts. The largest magnitude is assigned the
// level from 96 to 127 that minimizes the squared error of all entries, so tables of evenly spaced weights are exact.
Table16 codebook_table16(const Codebook& book, int64_t row, int64_t table);

}  // namespace millrace
