// Adaptively sparse attention (Anagnostidis et al., 2023, "Dynamic Context Pruning for Efficient and Interpretable
// Autoregressive Transformers"). Gates of each layer, trained with the checkpoint, let a token drop earlier ones for
// good: token n keeps token j if q_n . k_j / sqrt(dims) + bias > 0. In training that is a sparse sigmoid, and the
// product over the tokens since j scales j's attention; its limit, the step, is what the paper generates with. How many
// tokens are stored follows from the text alone.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/gated.h"

namespace millrace {

Result<std::unique_ptr<const TokenEvictor>> make_adaptively_sparse(const OptionValues&) {
  return std::unique_ptr<const TokenEvictor>(std::make_unique<GatedEvictor>(TokenGate::pairs, 0));
}

}  // namespace millrace
