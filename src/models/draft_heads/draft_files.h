// The files of heads and layers that were trained to draft for a model: a Hugging Face folder with config.json and
// safetensors, which need not be a whole model.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/memory_accounts.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "models/arch.h"
#include "tensor/weight.h"

namespace millrace {

// Errors: those of open_model_files(); user (`path` is empty).
Result<std::shared_ptr<const ModelFiles>> open_draft_files(const std::string& path);

// Whether a tensor of that name is in the files, which must not depend on the spellings of an architecture.
inline bool has_tensor(const ModelFiles& files, const std::string& name) { return files.find(name) != nullptr; }

// Packs all matrices into one block of memory, charged as "draft model". Errors: as WeightPacker::add() and pack().
class DraftWeights {
 public:
  Result<void> pack(const ModelFiles& files, std::span<Weight* const> weights, const KernelTable& table,
                    ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts);
  int64_t bytes() const { return packed_.bytes(); }

 private:
  AlignedBuffer packed_;
  MemoryHold memory_;
};

// Text that tells these files from others: their sizes, and hashes of their first bytes.
std::string draft_identity(const ModelFiles& files);

}  // namespace millrace
