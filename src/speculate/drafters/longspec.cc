// LongSpec (Yang et al., 2025, LongSpec: Long-Context Lossless Speculative Decoding with Efficient Drafting and
// Verification): a layer drafts that sees a window of the newest tokens, and through a second attention what the model
// has computed of all the others. It was trained on positions with offsets behind a few anchors, so that short texts
// teach it long ones.
#include "speculate/drafters/factories.h"
#include "speculate/layer_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_longspec_drafter(const OptionValues& options) {
  MILLRACE_TRY(const LayerTree tree, read_layer_tree(options));
  return make_layer_drafter({"longspec", options}, tree);
}

}  // namespace millrace
