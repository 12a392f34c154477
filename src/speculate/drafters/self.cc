// Self-speculative decoding (Zhang et al., 2024, Draft & Verify: Lossless Large Language Model Acceleration via
// Self-Speculative Decoding): the model drafts with some of its attention and MLP blocks left out, on the same weights
// and the same keys and values.
#include "speculate/drafters/factories.h"
#include "speculate/exit_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_self_drafter(const OptionValues& options) {
  if (!options.text("skip").empty() && !(options.text("attn").empty() && options.text("mlp").empty()))
    return Error::user("skip: names a file, which says all; give it or attn and mlp");
  return make_exit_drafter({"self", options}, {options.integer("k"), options.number("p"), options.number("accept")});
}

}  // namespace millrace
