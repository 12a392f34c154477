// A checkpoint of a lab run: shape, progress, weights and moments. The file is replaced at once, so a run that is
// killed while it writes keeps the previous one. Thread-safety: stateless.
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
// Errors: user (no such file, another shape), corrupt.
Result<LabProgress> restore_lab_checkpoint(const std::string& path, LabModel& model, LabOptimizer& optimizer);

}  // namespace millrace
