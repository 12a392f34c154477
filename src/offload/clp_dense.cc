// Two functions of LAPACK that CLP calls for dense parts of a factorization, which its programs here do not have
// (flexgen_policy.cc): so that no program needs LAPACK. Weak: in a process with LAPACK, that one is called.
#include <algorithm>
#include <cmath>
#include <utility>

// Column-major matrices, as in LAPACK.

// Factors a [m, n] into unit lower and upper triangles with row exchanges `pivots` (from 1). `info`: 0, or the first
// column without a pivot, from 1.
extern "C" __attribute__((weak)) void dgetrf_(const int* m, const int* n, double* a, const int* lda, int* pivots,
                                              int* info) {
  const auto at = [&](int row, int column) -> double& { return a[row + static_cast<long>(column) * *lda]; };
  *info = 0;
  for (int k = 0; k < std::min(*m, *n); ++k) {
    int best = k;
    for (int i = k + 1; i < *m; ++i)
      if (std::fabs(at(i, k)) > std::fabs(at(best, k))) best = i;
    pivots[k] = best + 1;
    if (at(best, k) == 0) {
      if (*info == 0) *info = k + 1;
      continue;
    }
    for (int j = 0; j < *n && best != k; ++j) std::swap(at(best, j), at(k, j));
    for (int i = k + 1; i < *m; ++i) {
      at(i, k) /= at(k, k);
      for (int j = k + 1; j < *n; ++j) at(i, j) -= at(i, k) * at(k, j);
    }
  }
}

// Solves A x = b, or the transposed system, for `count` right sides with the factors of dgetrf_().
extern "C" __attribute__((weak)) void dgetrs_(const char* transposed, const int* n, const int* count, const double* a,
                                              const int* lda, const int* pivots, double* b, const int* ldb, int* info,
                                              long) {
  const auto at = [&](int row, int column) { return a[row + static_cast<long>(column) * *lda]; };
  *info = 0;
  for (int side = 0; side < *count; ++side) {
    double* x = b + static_cast<long>(side) * *ldb;
    if (*transposed == 'N' || *transposed == 'n') {
      for (int i = 0; i < *n; ++i) std::swap(x[i], x[pivots[i] - 1]);
      for (int i = 0; i < *n; ++i)
        for (int j = 0; j < i; ++j) x[i] -= at(i, j) * x[j];
      for (int i = *n - 1; i >= 0; --i) {
        for (int j = i + 1; j < *n; ++j) x[i] -= at(i, j) * x[j];
        x[i] /= at(i, i);
      }
    } else {
      for (int i = 0; i < *n; ++i) {
        for (int j = 0; j < i; ++j) x[i] -= at(j, i) * x[j];
        x[i] /= at(i, i);
      }
      for (int i = *n - 1; i >= 0; --i)
        for (int j = i + 1; j < *n; ++j) x[i] -= at(j, i) * x[j];
      for (int i = *n - 1; i >= 0; --i) std::swap(x[i], x[pivots[i] - 1]);
    }
  }
}
