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

void set_bert_encoder(ConfigReader& config, ArchSpec& spec) {
  set_encoder(config, spec);
  spec.norm = NormKind::layer;
  spec.pre_norm = false;
  spec.sum_norm = true;
  spec.embedding_norm = true;
}

}  // namespace millrace
