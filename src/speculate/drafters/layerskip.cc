// LayerSkip (Elhoushi et al., 2024, LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding): the
// model's first layers draft with its own last norm and head. The drafted tokens' keys and values of these layers are
// those of the whole model, so a step runs only the other layers for them.
#include "speculate/drafters/factories.h"
#include "speculate/exit_drafter.h"

namespace millrace {

Result<std::unique_ptr<Drafter>> make_layerskip_drafter(const OptionValues& options) {
  SkipChoice skips;
  skips.first = options.integer("exit");
  return make_exit_drafter({.skips = std::move(skips)},
                           {options.integer("k"), options.number("p"), options.number("accept")});
}

}  // namespace millrace
