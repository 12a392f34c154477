#include "compress/factorizers/dense_sparse.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/calibration/dense_sums.h"
#include "compress/rounding/symmetric_inverse.h"

namespace millrace {
namespace {

constexpr int64_t kTile = 64;         // values of an atom that one thread sums
constexpr double kDependent = 1e-9;   // of an atom's square that others do not span, at least
constexpr double kRidge = 1e-9;       // of the mean of the diagonal
constexpr double kExplained = 1e-12;  // of a column's square: nothing is left

// The triangle of the Gram matrix of chosen atoms, row by row, and the best values of their combination.
class Combination {
 public:
  // `with`: the products of the next atom with those before, and with itself. False: it depends on them.
  bool add(const std::vector<double>& with) {
    const size_t n = count_;
    for (size_t i = 0; i <= n; ++i) {
      double sum = with[i];
      for (size_t k = 0; k < i; ++k) sum -= at(i, k) * at(n, k);
      if (i == n && !(sum > kDependent * with[n])) {
        triangle_.resize(n * (n + 1) / 2);
        return false;
      }
      triangle_.push_back(i == n ? std::sqrt(sum) : sum / at(i, i));
    }
    ++count_;
    return true;
  }

  std::vector<double> solve(std::vector<double> right) const {
    for (size_t i = 0; i < count_; ++i) {
      for (size_t k = 0; k < i; ++k) right[i] -= at(i, k) * right[k];
      right[i] /= at(i, i);
    }
    for (size_t i = count_; i-- > 0;) {
      for (size_t k = i + 1; k < count_; ++k) right[i] -= at(k, i) * right[k];
      right[i] /= at(i, i);
    }
    return right;
  }

 private:
  double at(size_t i, size_t k) const { return triangle_[i * (i + 1) / 2 + k]; }
  size_t count_ = 0;
  std::vector<double> triangle_;
};

}  // namespace

DenseSparse::DenseSparse(const std::vector<float>& values, std::vector<double> squares, std::vector<double> atoms,
                         int64_t nonzeros, ThreadPool& pool)
    : rows_(std::ssize(values) / std::ssize(squares)),
      cols_(std::ssize(squares)),
      count_(std::ssize(atoms) / rows_),
      nonzeros_(std::min(nonzeros, count_)),
      columns_(values.size()),
      squares_(std::move(squares)),
      atoms_(std::move(atoms)),
      left_(static_cast<size_t>(cols_)),
      used_(static_cast<size_t>(cols_)),
      coefficients_(static_cast<size_t>(cols_)),
      pool_(pool) {
  for (int64_t r = 0; r < rows_; ++r)
    for (int64_t c = 0; c < cols_; ++c)
      columns_[static_cast<size_t>(c * rows_ + r)] = values[static_cast<size_t>(r * cols_ + c)];
}

void DenseSparse::code_column(int64_t col, const std::vector<double>& products) {
  std::vector<int32_t>& used = used_[static_cast<size_t>(col)];
  std::vector<double>& coefficients = coefficients_[static_cast<size_t>(col)];
  used.clear();
  coefficients.clear();
  const double all = dot_product(column(col), column(col), rows_);
  double& left = left_[static_cast<size_t>(col)];
  left = all;
  std::vector<double> start(static_cast<size_t>(count_)), now, with, right;
  for (int64_t k = 0; k < count_; ++k) start[static_cast<size_t>(k)] = dot_product(atom(k), column(col), rows_);
  now = start;  // products of the atoms with what is left of the column
  Combination combination;
  std::vector<uint8_t> taken(static_cast<size_t>(count_));
  while (std::ssize(used) < nonzeros_ && left > kExplained * all) {
    int64_t best = -1;
    double most = 0;
    for (int64_t k = 0; k < count_; ++k) {
      const auto i = static_cast<size_t>(k);
      const double square = products[static_cast<size_t>(k * count_ + k)];
      const double explains = taken[i] || square <= 0 ? 0 : now[i] * now[i] / square;
      if (explains <= most) continue;
      most = explains;
      best = k;
    }
    if (best < 0) break;
    taken[static_cast<size_t>(best)] = 1;
    with.clear();
    for (int32_t k : used) with.push_back(products[static_cast<size_t>(best * count_ + k)]);
    with.push_back(products[static_cast<size_t>(best * count_ + best)]);
    if (!combination.add(with)) continue;
    used.push_back(static_cast<int32_t>(best));
    right.push_back(start[static_cast<size_t>(best)]);
    coefficients = combination.solve(right);
    now = start;
    for (size_t i = 0; i < used.size(); ++i)
      add_scaled(now.data(), -coefficients[i], &products[static_cast<size_t>(used[i] * count_)], count_);
    left = std::max(0.0, all - dot_product(coefficients.data(), right.data(), std::ssize(right)));
  }
}

void DenseSparse::code() {
  std::vector<double> products(static_cast<size_t>(count_ * count_));
  pool_.parallel_for(count_, [&](int64_t i, int) {
    for (int64_t j = 0; j < count_; ++j)
      products[static_cast<size_t>(i * count_ + j)] = dot_product(atom(i), atom(j), rows_);
  });
  pool_.parallel_for(cols_, [&](int64_t c, int) { code_column(c, products); });
}

// Atoms without a use: zero after the update.
void DenseSparse::replace_unused() {
  std::vector<uint8_t> used(static_cast<size_t>(count_));
  for (const auto& own : used_)
    for (int32_t k : own) used[static_cast<size_t>(k)] = 1;
  std::vector<int64_t> worst(static_cast<size_t>(cols_));
  std::iota(worst.begin(), worst.end(), 0);
  std::ranges::stable_sort(worst, [&](int64_t a, int64_t b) {
    return squares_[static_cast<size_t>(a)] * left_[static_cast<size_t>(a)] >
           squares_[static_cast<size_t>(b)] * left_[static_cast<size_t>(b)];
  });
  size_t next = 0;
  for (int64_t k = 0; k < count_ && next < worst.size(); ++k)
    if (!used[static_cast<size_t>(k)]) std::copy_n(column(worst[next++]), rows_, atoms_.begin() + k * rows_);
}

void DenseSparse::update() {
  // S Q S^T and S Q W^T, Q the squares on a diagonal.
  std::vector<double> inverse(static_cast<size_t>(count_ * count_)), sums(atoms_.size());
  for (int64_t c = 0; c < cols_; ++c) {
    const auto at = static_cast<size_t>(c);
    for (size_t i = 0; i < used_[at].size(); ++i)
      for (size_t j = 0; j < used_[at].size(); ++j)
        inverse[static_cast<size_t>(used_[at][i] * count_ + used_[at][j])] +=
            squares_[at] * coefficients_[at][i] * coefficients_[at][j];
  }
  pool_.parallel_for((rows_ + kTile - 1) / kTile, [&](int64_t tile, int) {
    const int64_t begin = tile * kTile, size = std::min(kTile, rows_ - begin);
    for (int64_t c = 0; c < cols_; ++c) {
      const auto at = static_cast<size_t>(c);
      for (size_t i = 0; i < used_[at].size(); ++i)
        add_scaled(&sums[static_cast<size_t>(used_[at][i] * rows_ + begin)], squares_[at] * coefficients_[at][i],
                   column(c) + begin, size);
    }
  });
  double mean = 0;
  for (int64_t k = 0; k < count_; ++k)
    mean += inverse[static_cast<size_t>(k * count_ + k)] / static_cast<double>(count_);
  if (!(mean > 0)) return;
  for (int64_t k = 0; k < count_; ++k) inverse[static_cast<size_t>(k * count_ + k)] += kRidge * mean;
  if (!invert_symmetric(inverse, count_, pool_)) return;
  pool_.parallel_for(count_, [&](int64_t k, int) {
    double* to = &atoms_[static_cast<size_t>(k * rows_)];
    std::fill_n(to, rows_, 0.0);
    for (int64_t i = 0; i < count_; ++i)
      add_scaled(to, inverse[static_cast<size_t>(k * count_ + i)], &sums[static_cast<size_t>(i * rows_)], rows_);
  });
  replace_unused();
  for (int64_t k = 0; k < count_; ++k) {
    const double size = std::sqrt(dot_product(atom(k), atom(k), rows_));
    for (int64_t r = 0; size > 0 && r < rows_; ++r) atoms_[static_cast<size_t>(k * rows_ + r)] /= size;
  }
}

double DenseSparse::error() const {
  double lost = 0, all = 0;
  for (int64_t c = 0; c < cols_; ++c) {
    lost += squares_[static_cast<size_t>(c)] * left_[static_cast<size_t>(c)];
    all += squares_[static_cast<size_t>(c)] * dot_product(column(c), column(c), rows_);
  }
  return all > 0 ? lost / all : 0;
}

SparseMatrix DenseSparse::sparse() const {
  std::vector<std::vector<std::pair<int32_t, float>>> rows(static_cast<size_t>(count_));
  for (size_t c = 0; c < used_.size(); ++c)
    for (size_t i = 0; i < used_[c].size(); ++i)
      rows[static_cast<size_t>(used_[c][i])].emplace_back(static_cast<int32_t>(c),
                                                          static_cast<float>(coefficients_[c][i]));
  SparseMatrix out;
  out.row_begin = {0};
  for (const auto& row : rows) {
    for (const auto& [column, value] : row) {
      out.columns.push_back(column);
      out.values.push_back(value);
    }
    out.row_begin.push_back(std::ssize(out.values));
  }
  return out;
}

}  // namespace millrace
