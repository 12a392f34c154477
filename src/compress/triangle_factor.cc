#include "compress/triangle_factor.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int64_t kBlock = 64;

// In a fixed order that the compiler can vectorize.
double dot(const double* a, const double* b, int64_t n) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; ++l) lanes[l] += a[i + l] * b[i + l];
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

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
    const double pivot = *from(j, j) - dot(from(j, j) + 1, from(j, j) + 1, later);
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    *from(j, j) = std::sqrt(pivot);
    for (int64_t i = begin; i < j; ++i)
      *from(i, j) = (*from(i, j) - dot(from(i, j) + 1, from(j, j) + 1, later)) / *from(j, j);
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
        *from(i, j) -= dot(from(i, j) + (end - j), from(j, j) + (end - j), done);
    });
    if (!factor_block(begin, end)) return false;
    pool.parallel_for(begin, [&](int64_t i, int) {
      for (int64_t j = end - 1; j >= begin; --j)
        *from(i, j) = (*from(i, j) - dot(from(i, j) + 1, from(j, j) + 1, end - j - 1)) / *from(j, j);
    });
    end = begin;
  }
  return true;
}

}  // namespace millrace
