#include "run/evictor_check.h"

namespace millrace {

// A layer with a window counts slots, which are closer to each other than positions once tokens between them are gone.
Result<void> check_token_evictor(const EvictionRule&, const ArchSpec& spec, int64_t context) {
  for (const LayerSpec& layer : spec.layers)
    if (layer.window > 0 && layer.window < context)
      return Error::unsupported("evictor: this model has layers that see a window of positions");
  return {};
}

}  // namespace millrace
