#include "run/evictor_check.h"

#include <fmt/format.h>

#include "models/mixers/mixer.h"

namespace millrace {

Result<void> check_evictor_layout(const KvLayout& layout) {
  if (!layout.codec) return {};
  return Error::unsupported(
      fmt::format("evictor: KV format {} encodes whole blocks, which cannot lose single tokens; "
                  "use f16 or another format of rows",
                  layout.format_name()));
}

// A layer with a window counts slots, which are closer to each other than positions once tokens between them are gone.
Result<void> check_token_evictor(const EvictionRule&, const ArchSpec& spec, int64_t context) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mixer->state_kind == StateKind::recurrent)
      return Error::unsupported("evictor: this model has recurrent layers, which keep no keys and values to drop");
    if (layer.window > 0 && layer.window < context)
      return Error::unsupported("evictor: this model has layers that see a window of positions");
  }
  return {};
}

}  // namespace millrace
