// SVD-LLM (Wang et al., 2024, "SVD-LLM: Truncation-aware Singular Value Decomposition for Large Language Model
// Compression"): with a whitening S of the inputs, the Cholesky factor of the sum of x x^T, the decomposition of W S
// says what each singular value is worth: dropping sigma_i adds exactly sigma_i^2 to the outputs' squared error on the
// calibration text. So the largest k are kept, and no other pair of rank k is nearer to the outputs. The paper's A has
// S^-1, which U_k^T W does without; where W has more columns than rows, S is not needed either (low_rank.cc).
#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"

namespace millrace {
namespace {

class SvdLlm final : public Factorizer {
 public:
  using Factorizer::Factorizer;
  uint32_t needs() const override { return kSecondMoments; }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& statistics, int64_t count,
                    ThreadPool& pool) const override {
    return output_basis(matrix, {.moments = &statistics.moments}, count, pool);
  }
};

}  // namespace

Result<std::unique_ptr<Pass>> make_svd_llm_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  return std::unique_ptr<Pass>(std::make_unique<SvdLlm>(std::move(read)));
}

}  // namespace millrace
