// Shared by drafters that run some layers of the engine's model. A draft is a chain; each token takes one pass of these
// layers, on the model's own keys and values. The step's pass then computes all layers for the whole draft, and
// overwrites the keys of the drafting.
//
// A draft ends behind the first token whose probability is below the stream's threshold. The threshold can be adjusted
// so that the average share of kept tokens approaches `wanted` (Zhang et al., 2024, Draft & Verify: Lossless Large
// Language Model Acceleration via Self-Speculative Decoding).
#pragma once

#include "speculate/drafter.h"

namespace millrace {

struct DraftExit {
  int64_t drafted = 1;   // maximum tokens of a draft
  double threshold = 0;  // initial threshold; 0: drafts end only at `drafted` tokens
  double wanted = 0;     // wanted share of kept tokens; 0: the threshold does not change
};

std::unique_ptr<Drafter> make_exit_drafter(DraftModelSpec spec, const DraftExit& exit);

}  // namespace millrace
