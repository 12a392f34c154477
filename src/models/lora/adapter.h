// LoRA adapters (Hu et al., 2021, "LoRA: Low-Rank Adaptation of Large Language Models"): for some matrices of a model,
//
//   y = W x + scale * B (A x)        A [rank, cols], B [rows, rank]
//
// W is unchanged, so any number of adapters share one model, and the rows of one batch may use different ones.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory_accounts.h"
#include "models/model.h"

namespace millrace {

struct LoraPair {
  Weight a;  // [rank, cols] f32
  Weight b;  // [rows, rank] f32; already multiplied by alpha / rank
};

// Immutable; holds pointers to the model's weights, which must outlive it.
class LoraAdapter {
 public:
  // `path`: a GGUF adapter (general.type "adapter"), or PEFT's adapter_model.safetensors or its folder, with
  // adapter_config.json. `files` are the model's. Errors: corrupt (shapes that do not fit the model, NaN), unsupported
  // (DoRA, biases, embeddings, routed experts; names the tensor), user (for another architecture), resource.
  static Result<std::shared_ptr<const LoraAdapter>> load(const std::string& path, const Model& model,
                                                         const ModelFiles& files, const KernelTable& table,
                                                         std::shared_ptr<MemoryAccounts> accounts = nullptr);

  const LoraPair* find(const Weight* weight) const {  // null: the adapter does not change this matrix
    const auto found = pairs_.find(weight);
    return found == pairs_.end() ? nullptr : &found->second;
  }
  int64_t rank() const { return rank_; }  // the largest
  int64_t matrices() const { return static_cast<int64_t>(pairs_.size()); }
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Hash of everything that it adds, in 32 hexadecimal digits: keys and values computed with different adapters are not
  // interchangeable.
  const std::string& identity() const { return identity_; }

 private:
  friend class LoraLoader;
  std::string path_, identity_;
  int64_t rank_ = 0, bytes_ = 0;
  std::unordered_map<const Weight*, LoraPair> pairs_;
  MemoryHold memory_;
};

struct LoraUse {
  std::shared_ptr<const LoraAdapter> adapter;
  float scale = 1.0f;
};
// The adapters of one stream, in the order in which their products are added.
using LoraMix = std::vector<LoraUse>;

}  // namespace millrace
