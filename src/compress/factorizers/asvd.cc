// ASVD (Yuan et al., 2023, "ASVD: Activation-aware Singular Value Decomposition for Compressing Large Language
// Models"): columns of W are scaled by the sizes of their inputs before the decomposition,
//
//   W S = U Sigma V^T     S_ii = (mean |x_i|) ^ alpha     B A = U_k Sigma_k V_k^T S^-1 = U_k U_k^T W
//
// so that columns with large inputs are kept better. The paper gives each matrix a ratio by how much the model's
// perplexity suffers; here the option `loss` does so by how much of the scaled matrix is dropped.
#include <algorithm>
#include <cmath>

#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"

namespace millrace {
namespace {

class Asvd final : public Factorizer {
 public:
  Asvd(FactorOptions options, double alpha) : Factorizer(std::move(options)), alpha_(alpha) {}
  uint32_t needs() const override { return kInputMagnitudes; }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t count,
                    ThreadPool& pool) const override {
    InputWeights weights;
    for (double sum : statistics.magnitudes) weights.scales.push_back(sum / static_cast<double>(statistics.rows));
    // An input that was always zero on this text counts little, not nothing.
    const double least = 1e-6 * *std::ranges::max_element(weights.scales);
    for (double& scale : weights.scales) scale = std::pow(std::max(scale, least), alpha_);
    return output_basis(matrix, weights, count, pool);
  }

  double alpha_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_asvd_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  return std::unique_ptr<Pass>(std::make_unique<Asvd>(std::move(read), options.number("alpha")));
}

}  // namespace millrace
