#include "tensor/codebook.h"

#include <algorithm>
#include <cmath>

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

namespace {

constexpr float kRound = 12582912;  // 1.5 * 2^23: added and subtracted, it rounds to nearest even
constexpr double kMaxWordError = 1.0 / 32;

float rounded(float level) { return level + kRound - kRound; }

// The least scale at which no sum of rounded entries, one of each book, is beyond int8; 0: all are zero.
float scale_of_words(const Codebook& book) {
  const int64_t dim = book.dim, book_values = dim << book.bits;
  std::vector<float> largest(static_cast<size_t>(book.books * dim));  // of each column
  float most = 0;
  for (int64_t m = 0; m < book.books; ++m)
    for (int64_t i = 0; i < book_values; ++i) {
      float& of_column = largest[static_cast<size_t>(m * dim + i % dim)];
      of_column = std::max(of_column, std::fabs(f16_to_f32(book.entries[static_cast<size_t>(m * book_values + i)])));
    }
  for (int64_t d = 0; d < dim; ++d) {
    float sum = 0;
    for (int64_t m = 0; m < book.books; ++m) sum += largest[static_cast<size_t>(m * dim + d)];
    most = std::max(most, sum);
  }
  const auto fits = [&](float inverse) {
    for (int64_t d = 0; d < dim; ++d) {
      float sum = 0;
      for (int64_t m = 0; m < book.books; ++m) sum += rounded(largest[static_cast<size_t>(m * dim + d)] * inverse);
      if (sum > 127) return false;
    }
    return true;
  };
  float top = 127;  // each book rounds up by at most a half
  while (most > 0 && !fits(top / most)) top -= 0.5f;
  return most / top;
}

}  // namespace

bool codewords_fit(const Codebook& book) { return book.dim == 8 && (book.bits == 8 || book.bits >= 14); }

void round_codewords(Codebook& book) {
  book.words.clear();
  if (!codewords_fit(book) || std::ssize(book.entries) != book.table_values()) return;
  const float scale = scale_of_words(book), inverse = scale > 0 ? 1 / scale : 0;
  if (!std::isfinite(inverse)) return;
  std::vector<int8_t> words(book.entries.size());
  double error = 0, all = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const float entry = f16_to_f32(book.entries[i]), level = rounded(entry * inverse);
    words[i] = static_cast<int8_t>(level);
    error += std::pow(double{entry} - double{level} * scale, 2);
    all += std::pow(double{entry}, 2);
  }
  if (error > kMaxWordError * kMaxWordError * all) return;
  book.words = std::move(words);
  book.word_scale = scale;
}

bool codebook_is_codewords(const Codebook& book) { return !book.words.empty(); }

bool codebook_is_table16(const Codebook& book) {
  const bool whole = book.tables_per_row == 1 || book.cols_per_table % kTable16Columns == 0;
  return book.bits <= 4 && book.dim == 1 && book.books == 1 && whole;
}

Table16 codebook_table16(const Codebook& book, int64_t row, int64_t table) {
  constexpr int kMaxLevel = 127, kTops = 32;  // levels of the largest magnitude, from the highest down
  const uint16_t* entries = table_of(book, row, table * book.cols_per_table);
  const int count = 1 << book.bits;
  float values[16], largest = 0;
  for (int i = 0; i < count; ++i) {
    values[i] = f16_to_f32(entries[i]);
    largest = std::max(largest, std::fabs(values[i]));
  }
  Table16 best;
  if (largest == 0) return best;
  float scale[kTops], inverse[kTops], error[kTops] = {};
  for (int k = 0; k < kTops; ++k) {
    scale[k] = largest / static_cast<float>(kMaxLevel - k);
    inverse[k] = static_cast<float>(kMaxLevel - k) / largest;
  }
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < kTops; ++k) {  // side by side, in vectors
      const float level = values[i] * inverse[k], off = (level - rounded(level)) * scale[k];
      error[k] += off * off;
    }
  const int64_t top = std::min_element(error, error + kTops) - error;
  for (int i = 0; i < count; ++i) best.level[i] = static_cast<int8_t>(rounded(values[i] * inverse[top]));
  best.scale = scale[top];
  if (!book.row_scales.empty()) best.scale *= book.row_scales[static_cast<size_t>(row)];
  return best;
}

}  // namespace millrace
