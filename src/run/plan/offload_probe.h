// Measures what passes of a model cost, and what reading its weights costs while passes run: by the first layers of the
// model itself, as many as do not fit in a cache, which run from memory and from each kind of source. Used by
// `millrace offload plan`; takes a few seconds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "offload/costs.h"

namespace millrace {

struct OffloadProbe {
  std::shared_ptr<const ModelFiles> files;
  const KernelTable& kernels;
  std::shared_ptr<ThreadPool> threads;
  // A file that is written, on the disk that sources will read, and removed afterwards.
  std::string scratch_file;
  std::function<void(double)> progress;  // fraction completed; may be null
};

// Errors: those of loading and of passes; unsupported (an encoder).
Result<OffloadCosts> measure_offload_costs(const OffloadProbe& probe);

}  // namespace millrace
