// Writes a trained model as a GGUF file, with matrices as F16 and norms as F32. There is no output.weight, because the
// head is tied.
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/story_model.h"

namespace millrace {

struct StoryExport {
  std::string name;         // general.name
  std::string description;  // general.description; empty: none
  std::string path;
};

// Permutes the rows of every head so that the pairs of RoPE, rows i and i + head_dim/2, become rows 2i and 2i + 1.
// `weight`: [heads * head_dim, columns].
torch::Tensor interleave_heads(const torch::Tensor& weight, int64_t heads);

// Errors: user (the path cannot be written), unsupported (this build lacks F16 or F32).
Result<void> export_story_gguf(const StoryModel& model, const TokenizerSpec& tokenizer, const StoryExport& target);

}  // namespace millrace
