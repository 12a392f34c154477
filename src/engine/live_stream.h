// LiveStream: everything the engine holds for one running or waiting request.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "flow/sequence.h"
#include "millrace/events.h"
#include "sampling/chain.h"
#include "sampling/stop_strings.h"
#include "text/detokenizer.h"

namespace millrace {

struct LiveStream {
  Sequence sequence;
  std::unique_ptr<SamplerChain> sampler;
  std::unique_ptr<Detokenizer> detokenizer;  // null: the model has no tokenizer, events carry ids only
  std::unique_ptr<StopMatcher> stop;         // null: no stop strings
  bool cancelled = false;
  // Nanoseconds of the engine's clock; 0: not yet.
  int64_t submitted = 0;
  int64_t admitted = 0;
  int64_t first_token = 0;
};

}  // namespace millrace
