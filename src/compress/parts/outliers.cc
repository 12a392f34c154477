// Dense and sparse (Kim et al., 2023, "SqueezeLLM: Dense-and-Sparse Quantization"): a small fraction of the weights,
// those of largest magnitude, is stored exactly in a sparse matrix. The blocks that they leave have smaller scales, so
// that the other weights are rounded less. Of equal weights the first one is taken.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "compress/factories.h"
#include "compress/output/preview.h"

namespace millrace {
namespace {

class Outliers final : public Pass {
 public:
  explicit Outliers(double part) : part_(part) {}

  uint32_t needs() const override { return kNoStatistics; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return rows * cols * 4 + static_cast<int64_t>(part_ * static_cast<double>(rows * cols)) * 8;
  }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (!matrix.no_parts.empty()) return preview_left(std::string(matrix.no_parts));
    if (!matrix.parts.sparse.empty()) return preview_left("it has a sparse matrix already");
    const auto count = static_cast<int64_t>(part_ * static_cast<double>(matrix.rows * matrix.cols));
    if (count == 0) return preview_left("it has too few weights");
    preview_sparse(matrix, count);
    return PassPreview{"split", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& /*pool*/) override {
    if (!matrix.no_parts.empty()) return PassRow{"left", std::string(matrix.no_parts), {}};
    if (!matrix.parts.sparse.empty()) return PassRow{"left", "it has a sparse matrix already", {}};
    const auto count = static_cast<int64_t>(part_ * static_cast<double>(matrix.values.size()));
    if (count == 0) return PassRow{"left", "it has too few weights", {}};
    for (size_t i = 0; i < matrix.kept.size(); ++i)
      if (!matrix.kept[i]) matrix.values[i] = 0;  // pruned: no outlier
    std::vector<int32_t> order(matrix.values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto larger = [&](int32_t a, int32_t b) {
      const float x = std::fabs(matrix.values[static_cast<size_t>(a)]);
      const float y = std::fabs(matrix.values[static_cast<size_t>(b)]);
      return x != y ? x > y : a < b;
    };
    std::nth_element(order.begin(), order.begin() + count, order.end(), larger);
    std::sort(order.begin(), order.begin() + count);
    SparseMatrix& sparse = matrix.parts.sparse;
    sparse.row_begin.assign(static_cast<size_t>(matrix.rows + 1), 0);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t at = order[static_cast<size_t>(i)];
      ++sparse.row_begin[static_cast<size_t>(at / matrix.cols + 1)];
      sparse.columns.push_back(static_cast<int32_t>(at % matrix.cols));
      sparse.values.push_back(std::exchange(matrix.values[static_cast<size_t>(at)], 0.0f));
    }
    std::partial_sum(sparse.row_begin.begin(), sparse.row_begin.end(), sparse.row_begin.begin());
    return PassRow{"split", "", {{"outliers", static_cast<double>(count)}}};
  }

 private:
  double part_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_outliers_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<Outliers>(options.number("part")));
}

}  // namespace millrace
