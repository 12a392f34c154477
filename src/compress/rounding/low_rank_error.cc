#include "compress/rounding/low_rank_error.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "compress/matrix_parts.h"

namespace millrace {
namespace {

constexpr int kSubspaceRounds = 8;
constexpr int64_t kTile = 64;  // columns or rows that one thread sums
constexpr uint64_t kSeed = 20240204;

using Vectors = std::vector<double>;  // [rank, n]

double dot_of(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Gram-Schmidt, twice for precision. A vector that depends on the earlier ones becomes zero.
void orthonormalize(Vectors& vectors, int64_t rank, int64_t n) {
  for (int64_t k = 0; k < rank; ++k) {
    double* own = vectors.data() + k * n;
    const double before = std::sqrt(dot_of(own, own, n));
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < k; ++j) {
        const double* other = vectors.data() + j * n;
        const double along = dot_of(own, other, n);
        for (int64_t i = 0; i < n; ++i) own[i] -= along * other[i];
      }
    const double length = std::sqrt(dot_of(own, own, n));
    const double scale = length > 1e-9 * before ? 1 / length : 0;
    for (int64_t i = 0; i < n; ++i) own[i] *= scale;
  }
}

// The error E of a matrix and its inputs' statistics.
class ErrorOperator {
 public:
  ErrorOperator(const std::vector<float>& error, int64_t rows, int64_t cols, const LinearStatistics& statistics,
                bool moments, ThreadPool& pool)
      : error_(error), rows_(rows), cols_(cols), statistics_(statistics), moments_(moments), pool_(pool) {}

  // E^T q, [rank, cols].
  Vectors transposed(const Vectors& q, int64_t rank) const {
    Vectors out(static_cast<size_t>(rank * cols_));
    tiles(cols_, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows_; ++r)
        for (int64_t k = 0; k < rank; ++k) {
          const double factor = q[static_cast<size_t>(k * rows_ + r)];
          double* to = out.data() + k * cols_;
          for (int64_t c = begin; c < end; ++c) to[c] += factor * error_[static_cast<size_t>(r * cols_ + c)];
        }
    });
    return out;
  }

  // E H z, [rank, rows].
  Vectors weighted(const Vectors& z, int64_t rank) const {
    const Vectors inputs = by_inputs(z, rank);
    Vectors out(static_cast<size_t>(rank * rows_));
    tiles(rows_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t k = 0; k < rank; ++k) {
          const float* row = error_.data() + r * cols_;
          const double* in = inputs.data() + k * cols_;
          double sum = 0;
          for (int64_t c = 0; c < cols_; ++c) sum += row[c] * in[c];
          out[static_cast<size_t>(k * rows_ + r)] = sum;
        }
    });
    return out;
  }

 private:
  template <typename Body>
  void tiles(int64_t n, const Body& body) const {
    pool_.parallel_for((n + kTile - 1) / kTile, [&](int64_t i, int) { body(i * kTile, std::min(n, (i + 1) * kTile)); });
  }

  Vectors by_inputs(const Vectors& z, int64_t rank) const {
    Vectors out(z.size());
    tiles(cols_, [&](int64_t begin, int64_t end) {
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t i = begin; i < end; ++i) out[static_cast<size_t>(k * cols_ + i)] = input(z.data() + k * cols_, i);
    });
    return out;
  }
  // (H z)_i.
  double input(const double* z, int64_t i) const {
    if (!moments_) return statistics_.squares[static_cast<size_t>(i)] * z[i];
    double sum = 0;
    for (int64_t j = 0; j < cols_; ++j) sum += statistics_.moments.at(std::min(i, j), std::max(i, j)) * z[j];
    return sum;
  }

  const std::vector<float>& error_;
  int64_t rows_, cols_;
  const LinearStatistics& statistics_;
  bool moments_;
  ThreadPool& pool_;
};

// As they will be stored.
void round_to_f16(std::vector<float>& values) {
  const Format& format = *find_format("f16");
  std::vector<uint8_t> stored(static_cast<size_t>(format.row_bytes(std::ssize(values))));
  format.encode(values.data(), stored.data(), std::ssize(values));
  format.decode(stored.data(), values.data(), std::ssize(values));
}

// B times c and A over c, so that both are of about the same size.
void set_pair(PassMatrix& matrix, const Vectors& basis, const Vectors& along, int64_t rank) {
  double a = 0, b = 0;
  for (double value : along) a = std::max(a, std::fabs(value));
  for (double value : basis) b = std::max(b, std::fabs(value));
  const double c = a > 0 && b > 0 ? std::sqrt(a / b) : 1;
  PassParts& parts = matrix.parts;
  parts.rank = rank;
  parts.low_rank_a.resize(along.size());
  parts.low_rank_b.resize(basis.size());
  for (size_t i = 0; i < along.size(); ++i) parts.low_rank_a[i] = static_cast<float>(along[i] / c);
  for (int64_t k = 0; k < rank; ++k)
    for (int64_t r = 0; r < matrix.rows; ++r)
      parts.low_rank_b[static_cast<size_t>(r * rank + k)] =
          static_cast<float>(basis[static_cast<size_t>(k * matrix.rows + r)] * c);
  round_to_f16(parts.low_rank_a);
  round_to_f16(parts.low_rank_b);
}

}  // namespace

void round_plainly(PassMatrix& matrix, ThreadPool& pool) {
  if (!matrix.encoded.empty()) return;
  const int64_t row_bytes = matrix.format->row_bytes(matrix.cols);
  matrix.encoded.resize(static_cast<size_t>(matrix.rows * row_bytes));
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> row(matrix.values.begin() + r * matrix.cols, matrix.values.begin() + (r + 1) * matrix.cols);
    for (int64_t c = 0; c < matrix.cols; ++c)
      if (matrix.pruned(r, c)) row[static_cast<size_t>(c)] = 0;
    matrix.format->encode(row.data(), matrix.encoded.data() + r * row_bytes, matrix.cols);
  });
}

std::vector<float> rounding_error(const PassMatrix& matrix, ThreadPool& pool) {
  std::vector<float> error = matrix.values;
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    matrix.decode_row(r, row.data());
    for (int64_t c = 0; c < matrix.cols; ++c)
      error[static_cast<size_t>(r * matrix.cols + c)] -= row[static_cast<size_t>(c)];
  });
  apply_input_change(matrix.parts.input, matrix.cols, error, pool);
  apply_output_change(matrix.parts.output, matrix.cols, error, pool);
  return error;
}

void add_low_rank_pair(PassMatrix& matrix, const std::vector<float>& error, int64_t rank,
                       const LinearStatistics& statistics, bool moments, ThreadPool& pool) {
  const ErrorOperator op(error, matrix.rows, matrix.cols, statistics, moments, pool);
  Vectors basis(static_cast<size_t>(rank * matrix.rows));
  for (size_t i = 0; i < basis.size(); ++i) basis[i] = philox_uniform(kSeed, 0, i) - 0.5;
  orthonormalize(basis, rank, matrix.rows);
  for (int i = 0; i < kSubspaceRounds; ++i) {
    basis = op.weighted(op.transposed(basis, rank), rank);
    orthonormalize(basis, rank, matrix.rows);
  }
  set_pair(matrix, basis, op.transposed(basis, rank), rank);
}

}  // namespace millrace
