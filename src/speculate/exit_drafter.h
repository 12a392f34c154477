// Shared by drafters that run a part of the engine's model. A draft is a chain, one pass of the part for each token, on
// the model's own keys and values. The step's pass then computes all layers for the whole draft, and overwrites the
// keys of the drafting.
//
// A draft ends behind the first token whose probability is below the stream's threshold. The threshold may move so that
// the share of drafted tokens that are kept, averaged over the steps, is near a wanted one (Zhang et al., 2024, Draft &
// Verify: Lossless Large Language Model Acceleration via Self-Speculative Decoding).
#pragma once

#include "speculate/drafter.h"

namespace millrace {

struct DraftExit {
  int64_t drafted = 1;   // tokens of a draft, at most
  double threshold = 0;  // 0: drafts are whole
  double wanted = 0;     // share of tokens to be kept; 0: the threshold stays
};

std::unique_ptr<Drafter> make_exit_drafter(DraftModelSpec spec, const DraftExit& exit);

}  // namespace millrace
