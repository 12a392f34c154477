// Writes a trained model as a GGUF file: matrices as F16, norms as F32, no output.weight (the head is tied).
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

// Permutes the rows of every head from halves (i with i + head_dim/2) to interleaved pairs (2i, 2i+1). weight [heads *
// head_dim, columns] -> the same shape.
torch::Tensor interleave_heads(const torch::Tensor& weight, int64_t heads);

// Errors: user (the path cannot be written), unsupported (this build lacks F16 or F32).
Result<void> export_story_gguf(const StoryModel& model, const TokenizerSpec& tokenizer, const StoryExport& target);

}  // namespace millrace
