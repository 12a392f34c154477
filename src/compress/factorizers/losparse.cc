// LoSparse (Li et al., 2023, "LoSparse: Structured Compression of Large Language Models based on Low-Rank and Sparse
// Approximation"): W = U V + S. The truncated decomposition U V holds what the inputs share, and of the rest only the
// columns of S that matter most are kept, whole: the paper prunes neurons. It learns during training which ones; this
// is its start, without training: a column counts as its length times the size of its input.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/calibration/dense_sums.h"
#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"
#include "compress/output/preview.h"

namespace millrace {
namespace {

class LoSparse final : public Factorizer {
 public:
  LoSparse(FactorOptions options, double columns) : Factorizer(std::move(options)), columns_(columns) {}
  uint32_t needs() const override { return kInputNorms; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override {
    return Factorizer::working_bytes(rows, cols) + rows * cols * 16;
  }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& /*statistics*/, int64_t count,
                    ThreadPool& pool) const override {
    return output_basis(matrix, {}, count, pool);
  }

  void preview_rest(PassMatrix& matrix) const override {
    preview_sparse(matrix, static_cast<int64_t>(columns_ * static_cast<double>(matrix.cols)) * matrix.rows);
  }

  // S, of what the stored pair leaves.
  void complete(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) const override {
    const int64_t rows = matrix.rows, cols = matrix.cols;
    std::vector<double> left(matrix.values.begin(), matrix.values.end());
    PassParts& parts = matrix.parts;
    pool.parallel_for(rows, [&](int64_t r, int) {
      for (int64_t k = 0; k < parts.rank; ++k)
        add_scaled(left.data() + r * cols, -double{parts.low_rank_b[static_cast<size_t>(r * parts.rank + k)]},
                   parts.low_rank_a.data() + k * cols, cols);
    });
    const std::vector<int32_t> chosen = columns_to_keep(left, statistics, cols);
    SparseMatrix& sparse = parts.sparse;
    sparse.row_begin = {0};
    for (int64_t r = 0; r < rows; ++r) {
      for (int32_t c : chosen) {
        sparse.columns.push_back(c);
        sparse.values.push_back(static_cast<float>(left[static_cast<size_t>(r * cols + c)]));
      }
      sparse.row_begin.push_back(std::ssize(sparse.values));
    }
  }

  // Ascending; of equal ones the first.
  std::vector<int32_t> columns_to_keep(const std::vector<double>& left, const LinearStatistics& statistics,
                                       int64_t cols) const {
    std::vector<double> worth(static_cast<size_t>(cols));
    for (size_t i = 0; i < left.size(); ++i) worth[i % worth.size()] += left[i] * left[i];
    for (size_t c = 0; c < worth.size(); ++c) worth[c] *= statistics.squares[c];
    std::vector<int32_t> order(worth.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(), [&](int32_t c) { return worth[static_cast<size_t>(c)]; });
    order.resize(static_cast<size_t>(columns_ * static_cast<double>(cols)));
    std::ranges::sort(order);
    return order;
  }

  double columns_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_losparse_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  return std::unique_ptr<Pass>(std::make_unique<LoSparse>(std::move(read), options.number("columns")));
}

}  // namespace millrace
