// The built-in exit gates, one line each.
#include "exit/members/factories.h"

namespace millrace {

const Registry<ExitGateFactory>& exit_gates() {
  using Type = OptionSpec::Type;
  static const Registry<ExitGateFactory> registry(
      {.loss = Loss::lossy, .test = "tests/properties/exit_gates_test.cc"},
      {
          {{"exit",
            "layers",
            "every token of a stream leaves the model behind its first layers",
            "Elhoushi et al., 2024, LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding; Elbayad et "
            "al., 2020, Depth-Adaptive Transformer",
            {{"n", Type::integer, "1", 1, 1 << 20, "layers that run; as many as the model has: no row leaves early"}}},
           make_layers_exit},
      });
  return registry;
}

}  // namespace millrace
