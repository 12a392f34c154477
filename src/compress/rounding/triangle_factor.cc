#include "compress/rounding/triangle_factor.h"

#include <algorithm>
#include <cmath>

#include "compress/calibration/dense_sums.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 64;

}  // namespace

void TriangleFactor::fill(const SecondMoments& moments, const std::vector<int32_t>& order, double damping,
                          ThreadPool& pool) {
  n_ = moments.columns();
  values_.resize(static_cast<size_t>(n_ * (n_ + 1) / 2));
  pool.parallel_for(n_, [&](int64_t i, int) {
    for (int64_t j = i; j < n_; ++j) {
      const auto [low, high] = std::minmax(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
      *from(i, j) = moments.at(low, high) + (i == j ? damping : 0);
    }
  });
}

// The block on the diagonal, after all later columns were subtracted.
bool TriangleFactor::factor_block(int64_t begin, int64_t end) {
  for (int64_t j = end - 1; j >= begin; --j) {
    const int64_t later = end - j - 1;
    const double pivot = *from(j, j) - dot_product(from(j, j) + 1, from(j, j) + 1, later);
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    *from(j, j) = std::sqrt(pivot);
    for (int64_t i = begin; i < j; ++i)
      *from(i, j) = (*from(i, j) - dot_product(from(i, j) + 1, from(j, j) + 1, later)) / *from(j, j);
  }
  return true;
}

bool TriangleFactor::factor(const SecondMoments& moments, const std::vector<int32_t>& order, double damping,
                            ThreadPool& pool) {
  fill(moments, order, damping, pool);
  for (int64_t end = n_; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - kBlock), done = n_ - end;
    pool.parallel_for(end, [&](int64_t i, int) {
      for (int64_t j = std::max(i, begin); j < end; ++j)
        *from(i, j) -= dot_product(from(i, j) + (end - j), from(j, j) + (end - j), done);
    });
    if (!factor_block(begin, end)) return false;
    pool.parallel_for(begin, [&](int64_t i, int) {
      for (int64_t j = end - 1; j >= begin; --j)
        *from(i, j) = (*from(i, j) - dot_product(from(i, j) + 1, from(j, j) + 1, end - j - 1)) / *from(j, j);
    });
    end = begin;
  }
  return true;
}

// Of column j: R y = e_j, then R^T x = y.
std::vector<double> full_inverse(const TriangleFactor& factor, ThreadPool& pool) {
  const int64_t n = factor.size();
  std::vector<double> out(static_cast<size_t>(n * n));
  pool.parallel_for(n, [&](int64_t j, int) {
    double* x = &out[static_cast<size_t>(j * n)];
    x[j] = 1;
    for (int64_t i = j; i >= 0; --i) {
      const double* line = factor.row(i);
      double sum = x[i];
      for (int64_t k = i + 1; k <= j; ++k) sum -= line[k - i] * x[k];
      x[i] = sum / line[0];
    }
    for (int64_t i = 0; i < n; ++i) {
      const double* line = factor.row(i);
      x[i] /= line[0];
      for (int64_t k = i + 1; k < n; ++k) x[k] -= line[k - i] * x[i];
    }
  });
  return out;
}

}  // namespace millrace
