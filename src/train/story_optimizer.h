// StoryOptimizer: AdamW for embeddings and norms, and either AdamW or Muon for the matrices of the blocks. Muon uses
// momentum and orthogonalizes the update with five Newton-Schulz steps; it learns more from each pass over a small
// text. (Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization"; Jordan et al. 2024, "Muon: An optimizer for
// hidden layers in neural networks".) Thread-safety: none.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "train/story_model.h"

namespace millrace {

struct StoryOptimizerConfig {
  bool muon = true;
  double adam_rate = 3e-3;
  double muon_rate = 0.02;
  double weight_decay = 0.1;  // for matrices only; norms and embeddings do not decay
  double clip = 1.0;          // maximum norm of the gradient over all parameters
};

class StoryOptimizer {
 public:
  StoryOptimizer(StoryModel& model, const StoryOptimizerConfig& config);

  // Performs one update with the learning rates times `schedule` (0..1); clears the gradients. Returns the gradient's
  // norm.
  double step(double schedule);

  void save(torch::serialize::OutputArchive& archive) const;
  void load(torch::serialize::InputArchive& archive);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, first, second;  // `second` is not used by Muon
    bool muon = false;
    double decay = 0;
    std::vector<int64_t> parts;  // number of rows of each matrix that is stacked in the parameter
  };
  void adam(Slot& slot, double rate);
  void muon(Slot& slot, double rate);

  StoryOptimizerConfig config_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
};

}  // namespace millrace
