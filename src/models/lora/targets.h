// Which of a model's matrices a pair of factors changes. A fused tensor of a checkpoint is several matrices here, each
// with its own rows of B.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace millrace {

struct LoraTarget {
  const Weight* weight = nullptr;
  int64_t row_begin = 0;      // of B
  int64_t rotated_heads = 0;  // of q and k: their rows come in the order in which heads rotate; 0: others
};

// `canonical`: "blk.3.attn_q.weight"; `rows` those of B. Empty: adapters cannot change it, or it is not there.
std::vector<LoraTarget> lora_targets(const Model& model, const std::string& canonical, int64_t rows);

}  // namespace millrace
