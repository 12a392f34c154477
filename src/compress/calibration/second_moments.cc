#include "compress/calibration/second_moments.h"

#include <algorithm>

#include "compress/calibration/dense_sums.h"
#include "formats/format.h"
#include "kernels/activation.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 512;   // of X in one product
constexpr int64_t kPanel = 128;  // columns of X that one product multiplies with all later ones

}  // namespace

int64_t SecondMoments::scratch_bytes(int64_t columns) {
  return columns * (kRows * 4 + activation_row_bytes(Activation::f32, kRows) + kPanel * 4) + 2 * kPanel * kRows * 4;
}

Result<void> SecondMoments::add(const float* x, int64_t rows, const KernelTable& table, ThreadPool& pool) {
  const int64_t n = columns_;
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t count = std::min(kRows, rows - first);
    std::vector<float> turned(static_cast<size_t>(n * count));  // [columns, rows]
    pool.parallel_for(n, [&](int64_t c, int) {
      for (int64_t r = 0; r < count; ++r) turned[static_cast<size_t>(c * count + r)] = x[(first + r) * n + c];
    });
    MILLRACE_TRY(auto scratch,
                 AlignedBuffer::allocate(n * activation_row_bytes(Activation::f32, count), "second moments"));
    const ActivationRows all =
        encode_activations(table, pool, Activation::f32, turned.data(), count, n, count, scratch.data());
    std::vector<float> products(static_cast<size_t>(n * kPanel));  // [columns, panel]
    for (int64_t begin = 0; begin < n; begin += kPanel) {
      Weight panel;
      panel.name = "second moments";
      panel.format = find_format("f32");
      panel.rows = std::min(kPanel, n - begin);
      panel.cols = count;
      panel.data = reinterpret_cast<const uint8_t*>(turned.data() + begin * count);
      MILLRACE_TRY_VOID(pack_weight(panel, table, pool));
      ActivationRows later = all;
      later.data += begin * all.stride;
      later.tokens = n - begin;
      linear(pool, panel, later, products.data(), kPanel);
      pool.parallel_for(panel.rows, [&](int64_t i, int) {
        double* sums = &sums_[static_cast<size_t>(row_begin(begin + i))];
        for (int64_t j = i; j < n - begin; ++j) sums[j - i] += products[static_cast<size_t>(j * kPanel + i)];
      });
    }
  }
  return {};
}

double SecondMoments::diagonal_mean() const {
  double sum = 0;
  for (int64_t i = 0; i < columns_; ++i) sum += at(i, i);
  return columns_ > 0 ? sum / static_cast<double>(columns_) : 0;
}

double SecondMoments::form(const double* e) const {
  double sum = 0;
  for (int64_t i = 0; i < columns_; ++i) {
    if (e[i] == 0) continue;
    const double* row = &sums_[static_cast<size_t>(row_begin(i))];
    sum += e[i] * (row[0] * e[i] + 2 * dot_product(row + 1, e + i + 1, columns_ - i - 1));
  }
  return sum;
}

std::vector<double> SecondMoments::dense() const {
  std::vector<double> out(static_cast<size_t>(columns_ * columns_));
  for (int64_t i = 0; i < columns_; ++i)
    for (int64_t j = i; j < columns_; ++j)
      out[static_cast<size_t>(i * columns_ + j)] = out[static_cast<size_t>(j * columns_ + i)] = at(i, j);
  return out;
}

double trace_product(const SecondMoments& a, const SecondMoments& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.columns(); ++i) {
    double row = 0;
    for (int64_t j = i + 1; j < a.columns(); ++j) row += a.at(i, j) * b.at(i, j);
    sum += a.at(i, i) * b.at(i, i) + 2 * row;
  }
  return sum;
}

}  // namespace millrace
