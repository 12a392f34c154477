// LiveStream: everything the engine holds for one running or waiting request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flow/sequence.h"
#include "kv/tiers/tier.h"
#include "millrace/events.h"
#include "models/lora/adapter.h"
#include "sampling/chain.h"
#include "sampling/stop_strings.h"
#include "text/detokenizer.h"

namespace millrace {

class AnswerGroup;
struct BeamGroup;

struct LiveStream {
  Sequence sequence;
  std::optional<SamplerChain> sampler;
  std::unique_ptr<Detokenizer> detokenizer;  // null: the model has no tokenizer, events carry ids only
  StopMatcher stop;
  bool cancelled = false;
  bool ended = false;
  TierTicket ticket = 0;                 // while swapping out, swapped or loading
  KvRange range;                         // its own in the pool, while it holds blocks
  TierTicket store_ticket = 0;           // while blocks come from the prefix store
  int64_t store_blocks = 0;              // of that load
  int64_t store_from = 0;                // tokens before them
  int64_t store_left_out = 0;            // tokens among them that the load leaves out
  int64_t mend_from = 0, mend_end = 0;   // its blocks that the store lost or has damaged, until they are computed
  std::shared_ptr<AnswerGroup> answers;  // of the whole request; null: this is the only one
  bool scored = false;                   // its tokens' log-probabilities are wanted, to choose among answers
  double logprob_sum = 0;
  std::vector<float> importance;     // of its first blocks, observed; see kv/prefix_evictor.h
  LoraMix adapters;                  // that it runs with
  std::shared_ptr<BeamGroup> beams;  // the search it is a beam of; null: none
};

}  // namespace millrace
