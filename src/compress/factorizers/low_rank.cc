#include "compress/factorizers/low_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/calibration/dense_sums.h"
#include "compress/factorizers/symmetric_eigen.h"
#include "compress/rounding/triangle_factor.h"

namespace millrace {
namespace {

constexpr int64_t kSummedRows = 8;  // that one thread sums

template <typename Body>
void for_row_tiles(int64_t n, ThreadPool& pool, const Body& body) {
  pool.parallel_for((n + kSummedRows - 1) / kSummedRows,
                    [&](int64_t i, int) { body(i * kSummedRows, std::min(n, (i + 1) * kSummedRows)); });
}

// W diag(scales)^power, in double precision.
std::vector<double> scaled_columns(const PassMatrix& matrix, const std::vector<double>& scales, bool squared) {
  std::vector<double> out(matrix.values.begin(), matrix.values.end());
  for (size_t i = 0; i < out.size() && !scales.empty(); ++i) {
    const double scale = scales[i % static_cast<size_t>(matrix.cols)];
    out[i] *= squared ? scale * scale : scale;
  }
  return out;
}

// W H, of the moments H around the centre.
std::vector<double> times_moments(const PassMatrix& matrix, const InputWeights& weights, ThreadPool& pool) {
  const int64_t cols = matrix.cols;
  std::vector<double> out(matrix.values.size());
  for_row_tiles(matrix.rows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < cols; ++i) {
      const double* upper = weights.moments->row(i);  // from column i on
      for (int64_t r = begin; r < end; ++r) {
        const float* w = matrix.values.data() + r * cols;
        double* to = out.data() + r * cols;
        to[i] += dot_product(upper, w + i, cols - i);
        add_scaled(to + i + 1, w[i], upper + 1, cols - i - 1);
      }
    }
    for (int64_t r = begin; r < end && !weights.sums.empty(); ++r) {
      const double along = dot_product(weights.sums.data(), matrix.values.data() + r * cols, cols);
      add_scaled(out.data() + r * cols, -along / static_cast<double>(weights.rows), weights.sums.data(), cols);
    }
  });
  return out;
}

// W S S^T W^T, [rows, rows].
std::vector<double> output_moments(const PassMatrix& matrix, const InputWeights& weights, ThreadPool& pool) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  const std::vector<double> left =
      weights.moments ? times_moments(matrix, weights, pool) : scaled_columns(matrix, weights.scales, true);
  std::vector<double> out(static_cast<size_t>(rows * rows));
  for_row_tiles(rows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t s = 0; s < end; ++s)
      for (int64_t r = std::max(begin, s); r < end; ++r)
        out[static_cast<size_t>(r * rows + s)] =
            dot_product(left.data() + r * cols, matrix.values.data() + s * cols, cols);
  });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < r; ++s) out[static_cast<size_t>(s * rows + r)] = out[static_cast<size_t>(r * rows + s)];
  return out;
}

// The moments around the centre.
SecondMoments centred(const InputWeights& weights) {
  SecondMoments out = *weights.moments;
  for (int64_t i = 0; i < out.columns() && !weights.sums.empty(); ++i)
    add_scaled(out.row(i), -weights.sums[static_cast<size_t>(i)] / static_cast<double>(weights.rows),
               weights.sums.data() + i, out.columns() - i);
  return out;
}

// W S, [rows, cols]; with moments, S is their Cholesky factor, of a sum with a small multiple of I where they have
// none.
std::vector<double> whitened(const PassMatrix& matrix, const InputWeights& weights, ThreadPool& pool) {
  if (!weights.moments) return scaled_columns(matrix, weights.scales, false);
  const int64_t cols = matrix.cols;
  const SecondMoments moments = centred(weights);
  std::vector<int32_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), 0);
  TriangleFactor factor;
  double damping = 0;
  while (!factor.factor(moments, order, damping, pool)) {
    damping = damping > 0 ? 10 * damping : 1e-10 * moments.diagonal_mean();
    if (!std::isfinite(damping) || damping <= 0) return {};
  }
  std::vector<double> out(matrix.values.size());
  for_row_tiles(matrix.rows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t r = begin; r < end; ++r)
        add_scaled(out.data() + r * cols + i, matrix.values[static_cast<size_t>(r * cols + i)], factor.row(i),
                   cols - i);
  });
  return out;
}

// M^T M, [cols, cols].
std::vector<double> gram(const std::vector<double>& m, int64_t rows, int64_t cols, ThreadPool& pool) {
  std::vector<double> out(static_cast<size_t>(cols * cols));
  for_row_tiles(cols, pool, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = begin; i < end; ++i)
        add_scaled(out.data() + i * cols + i, m[static_cast<size_t>(r * cols + i)], m.data() + r * cols + i, cols - i);
  });
  for (int64_t i = 0; i < cols; ++i)
    for (int64_t j = 0; j < i; ++j) out[static_cast<size_t>(i * cols + j)] = out[static_cast<size_t>(j * cols + i)];
  return out;
}

// Energies that are nothing but the error of their computation.
void clear_noise(std::vector<double>& energies) {
  for (double& energy : energies) energy = energy > 1e-14 * energies.front() ? energy : 0;
}

}  // namespace

void orthonormal_rows(std::vector<double>& rows, int64_t count, int64_t n) {
  for (int64_t k = 0; k < count; ++k) {
    double* own = rows.data() + k * n;
    const double before = std::sqrt(dot_product(own, own, n));
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < k; ++j) {
        const double* other = rows.data() + j * n;
        add_scaled(own, -dot_product(own, other, n), other, n);
      }
    const double length = std::sqrt(dot_product(own, own, n));
    const double scale = length > 1e-9 * before ? 1 / length : 0;
    for (int64_t i = 0; i < n; ++i) own[i] *= scale;
  }
}

int64_t output_basis_bytes(int64_t rows, int64_t cols) {
  const int64_t small = std::min(rows, cols);
  const int64_t moments = rows > cols ? 2 * SecondMoments::bytes(cols) : 0;
  return 2 * rows * cols * 8 + moments + small * small * 8 + symmetric_eigen_bytes(small);
}

OutputBasis output_basis(const PassMatrix& matrix, const InputWeights& weights, int64_t count, ThreadPool& pool) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  OutputBasis out;
  if (rows <= cols) {
    EigenPairs pairs = symmetric_eigen(output_moments(matrix, weights, pool), rows, count, pool);
    out.found = pairs.converged;
    out.energies = std::move(pairs.values);
    out.vectors = std::move(pairs.vectors);
    if (out.found) clear_noise(out.energies);
    return out;
  }
  const std::vector<double> m = whitened(matrix, weights, pool);
  if (m.empty()) return out;
  EigenPairs pairs = symmetric_eigen(gram(m, rows, cols, pool), cols, count, pool);
  out.found = pairs.converged;
  if (!out.found) return out;
  out.energies = std::move(pairs.values);
  clear_noise(out.energies);
  count = std::min(count, cols);
  out.vectors.resize(static_cast<size_t>(count * rows));
  for_row_tiles(rows, pool, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < count; ++k)
      for (int64_t r = begin; r < end; ++r)
        out.vectors[static_cast<size_t>(k * rows + r)] =
            dot_product(m.data() + r * cols, pairs.vectors.data() + k * cols, cols);
  });
  orthonormal_rows(out.vectors, count, rows);
  return out;
}

double dropped_energy(const std::vector<double>& energies, int64_t rank) {
  double kept = 0, dropped = 0;
  for (size_t i = energies.size(); i-- > 0;) (static_cast<int64_t>(i) < rank ? kept : dropped) += energies[i];
  return kept + dropped > 0 ? dropped / (kept + dropped) : 0;
}

std::vector<double> solve_inner(const PassMatrix& matrix, const std::vector<double>& b, int64_t count,
                                ThreadPool& pool) {
  const int64_t rows = matrix.rows, cols = matrix.cols;
  // B^T B = L L^T, in the lower triangle.
  std::vector<double> l(static_cast<size_t>(count * count));
  for_row_tiles(count, pool, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j <= i; ++j)
        l[static_cast<size_t>(i * count + j)] = dot_product(b.data() + i * rows, b.data() + j * rows, rows);
  });
  for (int64_t i = 0; i < count; ++i) {
    double* own = l.data() + i * count;
    const double size = own[i];
    for (int64_t j = 0; j < i; ++j) {
      const double* other = l.data() + j * count;
      own[j] = other[j] > 0 ? (own[j] - dot_product(own, other, j)) / other[j] : 0;
    }
    const double pivot = own[i] - dot_product(own, own, i);
    if (size > 0 && !(pivot > 1e-12 * size)) return {};
    own[i] = size > 0 ? std::sqrt(pivot) : 0;
  }
  std::vector<double> a(static_cast<size_t>(count * cols));
  constexpr int64_t kSolvedColumns = 64;
  pool.parallel_for((cols + kSolvedColumns - 1) / kSolvedColumns, [&](int64_t tile, int) {
    const int64_t begin = tile * kSolvedColumns, n = std::min(cols - begin, kSolvedColumns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < count; ++k)
        add_scaled(a.data() + k * cols + begin, b[static_cast<size_t>(k * rows + r)],
                   matrix.values.data() + r * cols + begin, n);
    const auto divide = [&](int64_t k) {
      const double pivot = l[static_cast<size_t>(k * count + k)];
      for (int64_t c = begin; c < begin + n; ++c) a[static_cast<size_t>(k * cols + c)] *= pivot > 0 ? 1 / pivot : 0;
    };
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t j = 0; j < k; ++j)
        add_scaled(a.data() + k * cols + begin, -l[static_cast<size_t>(k * count + j)], a.data() + j * cols + begin, n);
      divide(k);
    }
    for (int64_t k = count - 1; k >= 0; --k) {
      for (int64_t j = k + 1; j < count; ++j)
        add_scaled(a.data() + k * cols + begin, -l[static_cast<size_t>(j * count + k)], a.data() + j * cols + begin, n);
      divide(k);
    }
  });
  return a;
}

}  // namespace millrace
