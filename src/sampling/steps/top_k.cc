// Top-k: the k most likely tokens (Fan et al., 2018, "Hierarchical Neural Story Generation").
#include "sampling/steps/factories.h"

namespace millrace {
namespace {

class TopK final : public SamplerStep {
 public:
  explicit TopK(int64_t k) : k_(static_cast<size_t>(k)) {}

  void apply(SamplingRow& row) override { row.keep_best(k_); }
  std::unique_ptr<SamplerStep> clone() const override { return std::make_unique<TopK>(*this); }

 private:
  size_t k_;
};

}  // namespace

std::unique_ptr<SamplerStep> make_top_k(const SamplerSetup& setup) {
  if (!setup.truncates() || setup.options.top_k <= 0) return nullptr;
  return std::make_unique<TopK>(setup.options.top_k);
}

}  // namespace millrace
