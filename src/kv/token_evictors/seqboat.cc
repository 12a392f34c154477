// SeqBoat (Ren et al., 2023, "Sparse Modular Activation for Efficient Sequence Modeling"): each layer selects the
// tokens that run its attention; the others skip it, and nothing of them is stored. Attention sees the selected tokens
// alone, the newest `window` of them and the token itself. The paper selects the tokens of a gated attention unit
// behind a recurrent layer; here it is the attention of the model's architecture.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/gated.h"

namespace millrace {

Result<std::unique_ptr<const TokenEvictor>> make_seqboat(const OptionValues& options) {
  return std::unique_ptr<const TokenEvictor>(
      std::make_unique<GatedEvictor>(TokenGate::selection, options.integer("window")));
}

}  // namespace millrace
