// DraftOdds: the distribution from which a draft model drew a drafted token, after the stream's sampling steps.
// SpecInfer, SpecTr and speculative sampling call it q.
#pragma once

#include "millrace/token.h"
#include "sampling/row.h"

namespace millrace {

struct DraftOdds {
  const float* logits = nullptr;  // [vocabulary], -inf: not a candidate; valid during the step. Null: not known
  Softmax softmax;

  double of(TokenId token) const { return softmax.probability(logits[token]); }
};

}  // namespace millrace
