// Kangaroo (Liu et al., 2024, Kangaroo: Lossless Self-Speculative Decoding via Double Early Exiting): the model's first
// layers and a small adapter behind them, which was trained for it, draft. The first early exit is that of the layers,
// the second one that of drafting: a draft ends behind a token that the adapter is unsure of.
#include "speculate/drafters/factories.h"
#include "speculate/exit_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_kangaroo_drafter(const OptionValues& options) {
  return make_exit_drafter({"kangaroo", options}, {options.integer("k"), options.number("p"), 0});
}

}  // namespace millrace
