// LiveStream: everything the engine holds for one running or waiting request.
#pragma once

#include <memory>
#include <optional>
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
  std::optional<SamplerChain> sampler;
  std::unique_ptr<Detokenizer> detokenizer;  // null: the model has no tokenizer, events carry ids only
  StopMatcher stop;
  bool cancelled = false;
  // Nanoseconds of the engine's clock; 0: not yet.
  int64_t submitted = 0;
  int64_t admitted = 0;
  int64_t first_token = 0;
};

}  // namespace millrace
