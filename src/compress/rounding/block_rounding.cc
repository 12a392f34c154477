#include "compress/rounding/block_rounding.h"

#include <algorithm>

#include "compress/rounding/scale_search.h"

namespace millrace {
namespace {

void round_row(PassMatrix& matrix, ScaleSearch& search, const ErrorWeights& weights, int64_t r) {
  const Format& format = *matrix.format;
  std::vector<float> row(matrix.values.begin() + r * matrix.cols, matrix.values.begin() + (r + 1) * matrix.cols);
  double mean = 0;
  for (int64_t c = 0; c < matrix.cols; ++c) {
    float& value = row[static_cast<size_t>(c)];
    if (matrix.pruned(r, c)) value = 0;
    mean += double{value} * value / static_cast<double>(matrix.cols);
  }
  std::vector<double> cost(static_cast<size_t>(matrix.cols), 1.0);
  for (size_t c = 0; c < cost.size(); ++c) {
    if (!weights.columns.empty()) cost[c] = weights.columns[c];
    if (weights.by_value) cost[c] *= double{row[c]} * row[c] + mean;
  }
  uint8_t* block = matrix.encoded.data() + r * format.row_bytes(matrix.cols);
  for (int64_t c = 0; c < matrix.cols; c += format.block_values, block += format.block_bytes)
    search.choose(row.data() + c, cost.data() + c, block);
}

}  // namespace

void round_blocks(PassMatrix& matrix, bool search, const ErrorWeights& weights, ThreadPool& pool) {
  const int64_t row_bytes = matrix.format->row_bytes(matrix.cols);
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * row_bytes));
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    if (search) {
      ScaleSearch own(*matrix.format);
      return round_row(matrix, own, weights, r);
    }
    std::vector<float> row(matrix.values.begin() + r * matrix.cols, matrix.values.begin() + (r + 1) * matrix.cols);
    for (int64_t c = 0; c < matrix.cols; ++c)
      if (matrix.pruned(r, c)) row[static_cast<size_t>(c)] = 0;
    matrix.format->encode(row.data(), matrix.encoded.data() + r * row_bytes, matrix.cols);
  });
}

}  // namespace millrace
