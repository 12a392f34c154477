// Calibration of the kernel switch `npu`: the largest magnitude of each channel of each input.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "models/forward_hooks.h"
#include "models/model.h"
#include "models/npu/options.h"

namespace millrace {

// Add it to a runner's hooks and run texts; scales() is then their calibration.
class NpuCalibration final : public ForwardObserver {
 public:
  explicit NpuCalibration(const Model& model);

  bool taps(const LinearId& id) const override;
  void input(const LinearInput& input) override;
  const NpuScales& scales() const { return scales_; }

 private:
  NpuScales scales_;
};

// Calibrates with tokens that the model samples itself, from random first tokens (Liu et al., 2023, "LLM-QAT", takes
// training data from a model this way). Deterministic for any number of threads. Errors: unsupported (a model without
// logits), resource.
Result<NpuScales> sample_npu_scales(const Model& model, const KernelTable& kernels,
                                    std::shared_ptr<ThreadPool> threads);

}  // namespace millrace
