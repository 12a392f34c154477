#include "compress/factorizers/tensor_train_svd.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "compress/calibration/dense_sums.h"
#include "compress/factorizers/symmetric_eigen.h"

namespace millrace {

TensorTrain tensor_train_shape(int64_t width, int modes, int64_t rank) {
  std::vector<int64_t> primes;
  for (int64_t left = width, p = 2; left > 1; ++p)
    for (; left % p == 0; left /= p) primes.push_back(p);
  TensorTrain out;
  out.modes = static_cast<int>(std::min<int64_t>(modes, std::ssize(primes)));
  std::vector<int64_t> sizes(static_cast<size_t>(out.modes), 1);
  for (size_t i = primes.size(); i-- > 0;) *std::ranges::min_element(sizes) *= primes[i];
  std::ranges::sort(sizes, std::greater<>());
  int64_t before = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    before *= sizes[i];
    out.sizes[i] = static_cast<int32_t>(sizes[i]);
    out.ranks[i] = static_cast<int32_t>(std::min({rank, before, width / before, TensorTrain::kMaxRank}));
  }
  return out;
}

double tensor_train_svd(const TensorTrain& train, const float* row, float* cores) {
  ThreadPool alone(1);
  std::vector<double> left(row, row + train.width());  // [rank before, this mode, later modes]
  double dropped = 0;
  for (int mode = 0; mode + 1 < train.modes; ++mode) {
    const int64_t lines = train.rank_before(mode) * train.sizes[static_cast<size_t>(mode)];
    const int64_t cols = std::ssize(left) / lines, rank = train.ranks[static_cast<size_t>(mode)];
    std::vector<double> products(static_cast<size_t>(lines * lines));
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t j = 0; j < lines; ++j)
        products[static_cast<size_t>(i * lines + j)] =
            dot_product(left.data() + i * cols, left.data() + j * cols, cols);
    const EigenPairs eigen = symmetric_eigen(std::move(products), lines, rank, alone);
    for (int64_t k = rank; k < lines; ++k) dropped += std::max(0.0, eigen.values[static_cast<size_t>(k)]);
    std::vector<double> next(static_cast<size_t>(rank * cols));
    for (int64_t k = 0; k < rank; ++k)
      for (int64_t i = 0; i < lines; ++i) {
        const double value = eigen.vectors[static_cast<size_t>(k * lines + i)];
        cores[i * rank + k] = static_cast<float>(value);
        add_scaled(next.data() + k * cols, value, left.data() + i * cols, cols);
      }
    cores += lines * rank;
    left = std::move(next);
  }
  std::ranges::transform(left, cores, [](double value) { return static_cast<float>(value); });
  return dropped;
}

}  // namespace millrace
