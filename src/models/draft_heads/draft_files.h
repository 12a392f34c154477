// The files of heads and layers that were trained to draft for a model: a Hugging Face folder with config.json and
// safetensors, which need not be a whole model.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "models/arch.h"
#include "models/arch_spec.h"
#include "tensor/weight.h"

namespace millrace {

// Errors: those of open_model_files(); user (`path` is empty).
Result<std::shared_ptr<const ModelFiles>> open_draft_files(const std::string& path);

// Returns true if the files have a tensor of that name. Works without the tensor names of an architecture.
inline bool has_tensor(const ModelFiles& files, const std::string& name) { return files.find(name) != nullptr; }

// Packs all matrices into one block of memory, charged to `account`. Errors: as WeightPacker::add() and pack().
class DraftWeights {
 public:
  Result<void> pack(const ModelFiles& files, std::span<Weight* const> weights, const KernelTable& table,
                    ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts, const char* account = "draft model",
                    const char* advice = "choose another drafter, or raise the budget");
  int64_t bytes() const { return packed_.bytes(); }

 private:
  AlignedBuffer packed_;
  MemoryHold memory_;
};

// Ropes of a layer that drafts, for streams of up to a number of tokens.
struct DraftRopes {
  std::vector<std::vector<double>> frequencies;
  std::vector<float> scales;
};
// Reads the sizes of a layer that drafts for `target` from config.json to `spec`. `copied`: the file is that of the
// model, with all of its layers, and the draft layer is like the first. Errors: corrupt (the file), unsupported (more
// layers than one), user (made for a model of another width or vocabulary).
Result<DraftRopes> read_draft_config(const ModelFiles& files, const ArchSpec& target, int64_t context, ArchSpec& spec,
                                     bool copied = false);

// Matrices that read the same rounded rows. Errors: unsupported.
Result<void> check_draft_formats(const ModelFiles& files, const Weight& first,
                                 std::initializer_list<const Weight*> others);

// Text that tells these files from others: their sizes, and hashes of their first bytes.
std::string draft_identity(const ModelFiles& files);

}  // namespace millrace
