// EAGLE (Li et al., 2024, EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty; EAGLE-2: Faster
// Inference of Language Models with Dynamic Draft Trees; 2025, EAGLE-3: Scaling up Inference Acceleration of Large
// Language Models via Training-Time Test): a layer reads the model's feature of each token and predicts the next one.
#include "speculate/drafters/factories.h"
#include "speculate/layer_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_eagle_drafter(const OptionValues& options) {
  MILLRACE_TRY(const LayerTree tree, read_layer_tree(options));
  if (options.text("model").empty()) return Error::user("model: must name the folder of a checkpoint, model=PATH");
  return make_layer_drafter({"eagle", options}, tree);
}

}  // namespace millrace
