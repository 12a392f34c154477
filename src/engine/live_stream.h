// LiveStream: everything the engine holds for one running or waiting request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flow/sequence.h"
#include "kv/tiers/tier.h"
#include "millrace/events.h"
#include "sampling/chain.h"
#include "sampling/stop_strings.h"
#include "text/detokenizer.h"

namespace millrace {

struct LiveStream {
  Sequence sequence;
  std::optional<SamplerChain> sampler;
  std::unique_ptr<Detokenizer> detokenizer;  // null: the model has no tokenizer, events carry ids only
  StopMatcher stop;
  bool cancelled = false;
  bool ended = false;
  TierTicket ticket = 0;                      // while swapping out, swapped or loading
  KvRange range;                              // its own in the pool, while it holds blocks
  std::shared_ptr<int64_t> answers_left;      // of the whole request; null: this is the only one
};

}  // namespace millrace
