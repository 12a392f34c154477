// StructuralPass: a pass that makes a smaller model of the same kind: fewer layers, experts or columns. It changes the
// plan of the output, which is an ordinary file. It must be the only pass of a compression; other passes may compress
// its output in a second compression.
#pragma once

#include <memory>
#include <string>

#include "base/memory_accounts.h"
#include "compress/calibration/calibration.h"
#include "models/convert/conversion.h"

namespace millrace {

// Inputs and outputs of a structural pass.
struct StructuralWork {
  const ArchSpec& spec;      // spec of the input model
  std::string architecture;  // prefix of the metadata's keys: "llama"
  ConversionPlan& plan;
  InputCalibration* calibration;  // null if the pass needs none
  const KernelTable& kernels;
  ThreadPool& pool;
  std::shared_ptr<MemoryAccounts> accounts;
  std::vector<std::pair<std::string, PassRow>>& report;  // receives results by part: "blk.3"
};

class StructuralPass : public Pass {
 public:
  uint32_t needs() const override { return kForwardPasses; }
  StructuralPass* structural() final { return this; }
  Result<PassRow> apply(PassMatrix&, const LinearStatistics&, ThreadPool&) final { return PassRow{"left", "", {}}; }

  // Changes work.plan. Errors: user, unsupported (the pass does not support the model), resource.
  virtual Result<void> reshape(StructuralWork& work) = 0;
};

}  // namespace millrace
