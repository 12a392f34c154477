// A checkpoint of a lab run: the model's shape, the progress, the weights and the optimizer's moments. The file is
// replaced atomically, so a run that is killed while it writes keeps the previous checkpoint. Stateless.
#pragma once

#include <string>

#include "base/result.h"
#include "learn/lab_model.h"
#include "learn/lab_optimizer.h"

namespace millrace {

struct LabProgress {
  int64_t step = 0, tokens = 0;
  uint64_t next_example = 0;
  double elapsed_s = 0;
};

Result<void> save_lab_checkpoint(const std::string& path, const LabModel& model, const LabOptimizer& optimizer,
                                 const LabProgress& progress);
// Errors: user (the file does not exist, or the model has another shape), corrupt.
Result<LabProgress> restore_lab_checkpoint(const std::string& path, LabModel& model, LabOptimizer& optimizer);

}  // namespace millrace
