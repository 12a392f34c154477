// An adapter's file, in either kind: which matrices it has factors for, by the names of that kind.
//
//   GGUF          general.type "adapter", adapter.type "lora", adapter.lora.alpha; blk.0.attn_q.weight.lora_a / .lora_b
//   safetensors   PEFT: adapter_config.json beside it; base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight
//   ...
#pragma once

#include <map>
#include <string>

#include "loader/model_files.h"
#include "models/arch.h"

namespace millrace {

struct LoraFactors {
  const StoredTensor* a = nullptr;  // [rank, cols]
  const StoredTensor* b = nullptr;  // [rows, rank]
};

struct LoraFile {
  ModelFiles files;
  std::map<std::string, LoraFactors> factors;  // by canonical name: "blk.0.attn_q.weight"
  double alpha = 0;                            // 0: none, products are added as they are
  bool rank_stabilized = false;                // alpha / sqrt(rank) (Kalajdzievski, 2023) instead of alpha / rank
  RopeStyle rope_style = RopeStyle::half;      // how the rows of q and k lie

  float scale(int64_t rank) const;
};

// `arch` is the model's, of so many layers. Errors: corrupt, unsupported, user (made for another architecture).
Result<LoraFile> open_lora_file(const std::string& path, const Arch& arch, int64_t layers);

}  // namespace millrace
