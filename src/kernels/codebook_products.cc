#include "kernels/codebook_products.h"

#include <algorithm>
#include <cmath>

#include "tensor/codebook.h"
#include "tensor/half.h"

namespace millrace {

const Format& codebook_format(const Codebook& book) {
  if (codebook_is_table16(book)) return table16_indices();
  if (codebook_is_codewords(book)) return codeword_indices();
  return *find_format("q8_0");
}

double largest_weight(const Codebook& book) {
  float entry = 0, scale = book.row_scales.empty() ? 1 : 0;
  for (uint16_t one : book.entries) entry = std::max(entry, std::fabs(f16_to_f32(one)));
  for (float one : book.row_scales) scale = std::max(scale, std::fabs(one));
  return double{entry} * scale * book.books;
}

}  // namespace millrace
