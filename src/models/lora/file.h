// Reads an adapter's file, of either kind, and lists its factors by the file kind's tensor names.
//
//   GGUF          general.type "adapter", adapter.type "lora", adapter.lora.alpha; blk.0.attn_q.weight.lora_a / .lora_b
//   safetensors   PEFT: adapter_config.json next to it;
//                 base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight ...
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
  double alpha = 0;                            // 0: none, products are added unscaled
  bool rank_stabilized = false;                // alpha / sqrt(rank) (Kalajdzievski, 2023) instead of alpha / rank
  RopeStyle rope_style = RopeStyle::half;      // row order of q and k

  float scale(int64_t rank) const;
};

// `arch` is the model's architecture. Errors: corrupt, unsupported, user (made for another architecture).
Result<LoraFile> open_lora_file(const std::string& path, const Arch& arch, int64_t layers);

}  // namespace millrace
