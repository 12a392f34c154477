#include "compress/factorizers/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/calibration/dense_sums.h"

namespace millrace {
namespace {

constexpr int64_t kEigenRows = 16;      // that one thread changes at a time
constexpr int64_t kEigenColumns = 128;  // of eigenvectors that one thread turns at a time
constexpr int kMaxSteps = 60;           // for one eigenvalue; two or three are usual

// A = Q T Q^T with Q = H_0 H_1 ...; H_k = I - scale_k v_k v_k^T, whose v_k is left in row k of the matrix, from column
// k + 1 on.
struct Tridiagonal {
  std::vector<double> diagonal, beside;  // beside[k]: between k and k + 1
  std::vector<double> scales;
};

Tridiagonal tridiagonal_of(std::vector<double>& a, int64_t n, ThreadPool& pool) {
  Tridiagonal t{std::vector<double>(static_cast<size_t>(n)), std::vector<double>(static_cast<size_t>(n)),
                std::vector<double>(static_cast<size_t>(n))};
  std::vector<double> p(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    t.diagonal[static_cast<size_t>(k)] = a[static_cast<size_t>(k * n + k)];
    const int64_t first = k + 1, size = n - first;
    if (size == 0) break;
    double* v = a.data() + k * n + first;
    const double length = std::sqrt(dot_product(v, v, size));
    t.beside[static_cast<size_t>(k)] = v[0];
    if (size == 1 || length == 0 || length == std::fabs(v[0])) continue;
    const double sign = v[0] < 0 ? -1 : 1;
    t.beside[static_cast<size_t>(k)] = -sign * length;
    v[0] += sign * length;
    const double scale = 2 / dot_product(v, v, size);
    t.scales[static_cast<size_t>(k)] = scale;
    const int64_t tiles = (size + kEigenRows - 1) / kEigenRows;
    const auto rows = [&](int64_t tile, const auto& body) {
      for (int64_t r = first + tile * kEigenRows; r < std::min(n, first + (tile + 1) * kEigenRows); ++r) body(r);
    };
    pool.parallel_for(tiles, [&](int64_t tile, int) {
      rows(tile,
           [&](int64_t r) { p[static_cast<size_t>(r)] = scale * dot_product(v, a.data() + r * n + first, size); });
    });
    const double half = scale / 2 * dot_product(v, p.data() + first, size);
    add_scaled(p.data() + first, -half, v, size);
    pool.parallel_for(tiles, [&](int64_t tile, int) {
      rows(tile, [&](int64_t r) {
        const double own = v[r - first], other = p[static_cast<size_t>(r)];
        double* row = a.data() + r * n + first;
        for (int64_t c = 0; c < size; ++c) row[c] -= own * p[static_cast<size_t>(first + c)] + other * v[c];
      });
    });
  }
  return t;
}

struct Rotation {
  int64_t row;  // of rows `row` and `row` + 1
  double cosine, sine;
};

void turn_rows(std::vector<double>& rows, int64_t n, const std::vector<Rotation>& rotations, ThreadPool& pool) {
  pool.parallel_for((n + kEigenColumns - 1) / kEigenColumns, [&](int64_t tile, int) {
    const int64_t begin = tile * kEigenColumns, end = std::min(n, begin + kEigenColumns);
    for (const Rotation& one : rotations) {
      double* low = rows.data() + one.row * n;
      double* high = low + n;
      for (int64_t c = begin; c < end; ++c) {
        const double x = low[c], y = high[c];
        high[c] = one.sine * x + one.cosine * y;
        low[c] = one.cosine * x - one.sine * y;
      }
    }
  });
}

// One QL step on the block from `first` to `last`; appends its rotations.
void ql_step(std::vector<double>& d, std::vector<double>& e, int64_t first, int64_t last,
             std::vector<Rotation>& rotations) {
  const auto at = [](std::vector<double>& values, int64_t i) -> double& { return values[static_cast<size_t>(i)]; };
  const double half = (at(d, first + 1) - at(d, first)) / (2 * at(e, first));
  const double root = std::hypot(half, 1.0);
  double g = at(d, last) - at(d, first) + at(e, first) / (half + std::copysign(root, half));
  double sine = 1, cosine = 1, moved = 0;
  for (int64_t i = last - 1; i >= first; --i) {
    const double f = sine * at(e, i), b = cosine * at(e, i);
    const double r = std::hypot(f, g);
    at(e, i + 1) = r;
    if (r == 0) {  // the block falls apart here
      at(d, i + 1) -= moved;
      at(e, last) = 0;
      return;
    }
    sine = f / r;
    cosine = g / r;
    g = at(d, i + 1) - moved;
    const double turned = (at(d, i) - g) * sine + 2 * cosine * b;
    moved = sine * turned;
    at(d, i + 1) = g + moved;
    g = cosine * turned - b;
    rotations.push_back({i, cosine, sine});
  }
  at(d, first) -= moved;
  at(e, first) = g;
  at(e, last) = 0;
}

// Rows of `vectors` become the eigenvectors of T, `t.diagonal` their values.
bool diagonalize(Tridiagonal& t, std::vector<double>& vectors, int64_t n, ThreadPool& pool) {
  std::vector<double>&d = t.diagonal, &e = t.beside;
  std::vector<Rotation> rotations;
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max({largest, std::fabs(d[static_cast<size_t>(i)]), std::fabs(e[static_cast<size_t>(i)])});
  for (int64_t first = 0; first < n; ++first) {
    for (int step = 0;; ++step) {
      int64_t last = first;
      for (; last + 1 < n; ++last) {
        const double around = std::fabs(d[static_cast<size_t>(last)]) + std::fabs(d[static_cast<size_t>(last + 1)]);
        if (std::fabs(e[static_cast<size_t>(last)]) <= std::max(0x1p-52 * around, 0x1p-62 * largest)) break;
      }
      if (last == first) break;
      if (step == kMaxSteps || !std::isfinite(d[static_cast<size_t>(first)])) return false;
      ql_step(d, e, first, last, rotations);
      if (std::ssize(rotations) >= n) {
        turn_rows(vectors, n, rotations, pool);
        rotations.clear();
      }
    }
  }
  turn_rows(vectors, n, rotations, pool);
  return true;
}

}  // namespace

EigenPairs symmetric_eigen(std::vector<double> matrix, int64_t n, int64_t count, ThreadPool& pool) {
  EigenPairs out;
  Tridiagonal t = tridiagonal_of(matrix, n, pool);
  std::vector<double> own(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) own[static_cast<size_t>(i * n + i)] = 1;
  out.converged = diagonalize(t, own, n, pool);
  if (!out.converged) return out;
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t i) { return t.diagonal[static_cast<size_t>(i)]; });
  for (int64_t i : order) out.values.push_back(t.diagonal[static_cast<size_t>(i)]);
  count = std::min(count, n);
  out.vectors.resize(static_cast<size_t>(count * n));
  pool.parallel_for(count, [&](int64_t i, int) {
    double* vector = out.vectors.data() + i * n;
    std::copy_n(own.data() + order[static_cast<size_t>(i)] * n, n, vector);
    for (int64_t k = n - 2; k >= 0; --k) {
      const double* v = matrix.data() + k * n + k + 1;
      const double scale = t.scales[static_cast<size_t>(k)];
      if (scale != 0) add_scaled(vector + k + 1, -scale * dot_product(v, vector + k + 1, n - k - 1), v, n - k - 1);
    }
  });
  return out;
}

}  // namespace millrace
