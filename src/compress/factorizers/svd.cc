// Plain truncation of the singular value decomposition: of all pairs of a rank, B A has the smallest |W - B A| (Eckart
// and Young, 1936, "The Approximation of One Matrix by Another of Lower Rank"). No input is looked at; it is what the
// other factorizers are measured against.
#include "compress/factories.h"
#include "compress/factorizers/factorizer.h"

namespace millrace {
namespace {

class Svd final : public Factorizer {
 public:
  using Factorizer::Factorizer;
  uint32_t needs() const override { return kNoStatistics; }

 private:
  OutputBasis basis(const PassMatrix& matrix, const LinearStatistics& /*statistics*/, int64_t count,
                    ThreadPool& pool) const override {
    return output_basis(matrix, {}, count, pool);
  }
};

}  // namespace

Result<std::unique_ptr<Pass>> make_svd_pass(const OptionValues& options) {
  MILLRACE_TRY(FactorOptions read, read_factor_options(options));
  return std::unique_ptr<Pass>(std::make_unique<Svd>(std::move(read)));
}

}  // namespace millrace
