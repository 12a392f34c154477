// Maps a pair of factors to the model's matrices that it changes. A fused tensor of a checkpoint is several matrices
// here, each with its own rows of B.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace millrace {

struct LoraTarget {
  const Weight* weight = nullptr;
  int64_t row_begin = 0;      // first row of B
  int64_t rotated_heads = 0;  // for q and k: their rows are in rotation order; 0: others
};

// `canonical`: "blk.3.attn_q.weight"; `rows` is that of B. Empty: the matrix does not exist or adapters cannot change
// it.
std::vector<LoraTarget> lora_targets(const Model& model, const std::string& canonical, int64_t rows);

}  // namespace millrace
