#include "models/layer_mixers.h"

namespace millrace {

const Registry<const Mixer*>& mixers() {
  static const Registry<const Mixer*> registry(
      "mixer", {.loss = Loss::lossless},
      {&kAttentionMixer, &kMambaMixer, &kLatentMixer, &kMamba2Mixer, &kGatedDeltaNetMixer, &kBidirectionalMixer});
  return registry;
}

std::vector<KvLayer> layer_states(const ArchSpec& spec) {
  std::vector<KvLayer> out;
  for (LayerSpec layer : spec.layers) {
    set_own_sizes(spec, layer);
    out.push_back(layer_state(layer));
  }
  return out;
}

}  // namespace millrace
