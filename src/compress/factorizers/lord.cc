// LoRD (Kaushal et al., 2023, "LORD: Low Rank Decomposition Of Monolingual Code LLMs For One-Shot Compression"): the
// outputs y = W x are projected on the eigenvectors U_k of their covariance that have the largest eigenvalues, about
// their mean m = W E[x]:
//
//   y ~ U_k U_k^T (y - m) + m = U_k (U_k^T W) x + bias     bias = m - U_k U_k^T m
//
// The bias is stored beside the pair.
#include "compress/calibration/dense_sums.h"
#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"

namespace millrace {
namespace {

class Lord final : public Factorizer {
 public:
  using Factorizer::Factorizer;
  uint32_t needs() const override { return kSecondMoments | kInputSums; }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t count,
                    ThreadPool& pool) const override {
    return output_basis(matrix, {.moments = &statistics.moments, .sums = statistics.sums, .rows = statistics.rows},
                        count, pool);
  }

  void preview_rest(PassMatrix& matrix) const override {
    matrix.parts.bias.assign(static_cast<size_t>(matrix.rows), 0);
  }

  // What the stored pair, as rounded, leaves of the mean.
  void complete(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& /*pool*/) const override {
    PassParts& parts = matrix.parts;
    std::vector<double> mean, inner;
    for (double sum : statistics.sums) mean.push_back(sum / static_cast<double>(statistics.rows));
    for (int64_t k = 0; k < parts.rank; ++k)
      inner.push_back(dot_product(mean.data(), parts.low_rank_a.data() + k * matrix.cols, matrix.cols));
    parts.bias.resize(static_cast<size_t>(matrix.rows));
    for (int64_t r = 0; r < matrix.rows; ++r)
      parts.bias[static_cast<size_t>(r)] =
          static_cast<float>(dot_product(mean.data(), matrix.values.data() + r * matrix.cols, matrix.cols) -
                             dot_product(inner.data(), parts.low_rank_b.data() + r * parts.rank, parts.rank));
  }
};

}  // namespace

Result<std::unique_ptr<Pass>> make_lord_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  return std::unique_ptr<Pass>(std::make_unique<Lord>(std::move(read)));
}

}  // namespace millrace
