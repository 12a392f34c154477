// StructuralPass: a pass that makes a smaller model of the same kind: fewer layers, experts or columns. It changes the
// plan of the output, and the file is an ordinary one. It is the only pass of a compression; others may compress its
// output in a second one.
#pragma once

#include <memory>
#include <string>

#include "base/memory_accounts.h"
#include "compress/calibration/calibration.h"
#include "models/convert/conversion.h"

namespace millrace {

// Inputs and outputs of a structural pass.
struct StructuralWork {
  const ArchSpec& spec;      // spec of the input, as loaded
  std::string architecture;  // prefix of the metadata's keys: "llama"
  ConversionPlan& plan;
  InputCalibration* calibration;  // null if the pass needs none
  const KernelTable& kernels;
  ThreadPool& pool;
  std::shared_ptr<MemoryAccounts> accounts;
  std::vector<std::pair<std::string, PassRow>>& report;  // results by part: "blk.3"
};

class StructuralPass : public Pass {
 public:
  uint32_t needs() const override { return kForwardPasses; }
  StructuralPass* structural() final { return this; }
  Result<PassRow> apply(PassMatrix&, const LinearStatistics&, ThreadPool&) final { return PassRow{"left", "", {}}; }

  // Errors: user, unsupported (a model that cannot have it), resource.
  virtual Result<void> reshape(StructuralWork& work) = 0;
};

}  // namespace millrace
