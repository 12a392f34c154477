// Kept mass: the share of full attention that a pattern keeps. For every 17th token of a stream, each head's weights
// over all keys are computed, and the weights of keys in blocks that its query sees are added up. It only observes the
// forward pass, like mass.h; the observed pass itself runs with the pattern. Runs on one thread, in a fixed order.
#pragma once

#include <span>

#include "attention/full.h"

namespace millrace {

// Distance of the sampled tokens. It is not a power of two, so that their places in blocks vary.
inline constexpr int64_t kKeptMassEvery = 17;

struct KeptMass {
  double mass = 0;      // share of the attention that is kept, summed over `queries`
  double keys = 0;      // fraction of the earlier keys that is seen, summed over `queries`
  int64_t queries = 0;  // number of queries, counted for each head

  double mean_mass() const { return queries > 0 ? mass / static_cast<double>(queries) : 1; }
  double mean_keys() const { return queries > 0 ? keys / static_cast<double>(queries) : 1; }
};

// The sums that observe_kept_mass() adds to.
struct KeptMassHeads {
  std::span<KeptMass> heads;  // one for all KV heads of the layer, or one for each
  bool every_phase = false;   // true: also accumulate the mass for queries outside the pattern's phase
};

// Adds one layer's kept mass to `kept`. `q`: as in observe_mass(). `tiles`: as in attend(). The batch's keys and their
// summaries must be stored. Layers without the pattern add nothing.
void observe_kept_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                       const float* q, int64_t context, const KeptMassHeads& kept, const CodecTiles* tiles = nullptr);

}  // namespace millrace
