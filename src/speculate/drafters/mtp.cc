// Multi-token prediction (DeepSeek-AI, 2024, DeepSeek-V3 Technical Report; Gloeckle et al., 2024, Better & Faster Large
// Language Models via Multi-token Prediction): the layer behind the model's own that was trained with it to predict a
// token further on drafts for it, again and again from what it has predicted.
#include "speculate/drafters/factories.h"
#include "speculate/layer_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_mtp_drafter(const OptionValues& options) {
  MILLRACE_TRY(const LayerTree tree, read_layer_tree(options));
  return make_layer_drafter({"mtp", options}, tree);
}

}  // namespace millrace
