#include "tensor/codebook.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/half.h"

namespace millrace {
namespace {

const uint16_t* table_of(const Codebook& book, int64_t row, int64_t col) {
  const int64_t table = (book.first_row + row) / book.rows_per_table * book.tables_per_row + col / book.cols_per_table;
  return book.entries.data() + table * book.table_values();
}

}  // namespace

uint32_t codebook_index(const Codebook& book, const uint8_t* row, int64_t i) {
  const int64_t begin = i * book.bits, end = begin + book.bits;
  uint32_t word = 0;
  for (int64_t byte = begin / 8; byte * 8 < end; ++byte) word |= uint32_t{row[byte]} << (byte - begin / 8) * 8;
  return word >> begin % 8 & ((1u << book.bits) - 1);
}

void set_codebook_index(const Codebook& book, uint8_t* row, int64_t i, uint32_t index) {
  const int64_t begin = i * book.bits, end = begin + book.bits;
  const uint32_t word = index << begin % 8;
  for (int64_t byte = begin / 8; byte * 8 < end; ++byte)
    row[byte] = static_cast<uint8_t>(row[byte] | word >> (byte - begin / 8) * 8);
}

void decode_codebook(const Codebook& book, const uint8_t* indices, int64_t row, int64_t begin, int64_t count,
                     float* out) {
  for (int64_t c = begin; c < begin + count; c += book.dim, out += book.dim) {
    const uint16_t* table = table_of(book, row, c);
    for (int m = 0; m < book.books; ++m) {
      const uint32_t index = codebook_index(book, indices, c / book.dim * book.books + m);
      const uint16_t* entry = table + ((int64_t{m} << book.bits) + index) * book.dim;
      for (int d = 0; d < book.dim; ++d) out[d] = m == 0 ? f16_to_f32(entry[d]) : out[d] + f16_to_f32(entry[d]);
    }
    if (book.row_scales.empty()) continue;
    for (int d = 0; d < book.dim; ++d) out[d] *= book.row_scales[static_cast<size_t>(row)];
  }
}

bool codebook_is_table16(const Codebook& book) {
  return book.bits <= 4 && book.dim == 1 && book.books == 1 && book.tables_per_row == 1;
}

Table16 codebook_table16(const Codebook& book, int64_t row) {
  constexpr int kMostLevel = 127, kLeastLevel = 96;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: added and subtracted, it rounds to nearest even
  const uint16_t* entries = table_of(book, row, 0);
  const int count = 1 << book.bits;
  float values[16], largest = 0;
  for (int i = 0; i < count; ++i) {
    values[i] = f16_to_f32(entries[i]);
    largest = std::max(largest, std::fabs(values[i]));
  }
  Table16 best;
  if (largest == 0) return best;
  float least = std::numeric_limits<float>::infinity();
  for (int top = kMostLevel; top >= kLeastLevel && least > 0; --top) {
    Table16 tried;
    tried.scale = largest / static_cast<float>(top);
    const float inverse = static_cast<float>(top) / largest;
    float error = 0;
    for (int i = 0; i < count; ++i) {
      const float level = values[i] * inverse, rounded = level + kRound - kRound;
      tried.level[i] = static_cast<int8_t>(rounded);
      const float off = (level - rounded) * tried.scale;
      error += off * off;
    }
    if (!(error < least)) continue;
    least = error;
    best = tried;
  }
  if (!book.row_scales.empty()) best.scale *= book.row_scales[static_cast<size_t>(row)];
  return best;
}

}  // namespace millrace
