#include "models/arch/encoders.h"

#include <fmt/format.h>

namespace millrace {

void set_encoder(ConfigReader& config, ArchSpec& spec) {
  for (const char* key : {"attention.causal", "is_decoder", "add_cross_attention"})
    if (config.flag_or(key, false))
      config.fail(Error::unsupported(fmt::format("{}: {} in an encoder", config.source(), key)));
  spec.encoder = true;
  for (LayerSpec& layer : spec.layers) layer.mixers = {{&kBidirectionalMixer}};
}

}  // namespace millrace
