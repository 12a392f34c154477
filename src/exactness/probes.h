// Probes: the requests that the check of exactness sends in several ways. Their prompts are random common words, so
// that likeliest tokens are close to each other and a small difference of sums shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exactness/completion_call.h"

namespace millrace {

struct Probe {
  std::string name;
  CompletionCall call;
};

struct ProbeSizes {
  uint64_t salt = 0;         // other salts give other prompts, which no server has in its cache
  int64_t long_words = 200;  // words of the long prompts
  int64_t max_tokens = 24;
};

// Returns six requests: a short and a long prompt, and two with a common prefix of three quarters of the long one's
// words; each kind greedily and sampled with a seed.
std::vector<Probe> make_probes(const ProbeSizes& sizes);

// Returns request number `index` of the load that has no part in any comparison. Its prompt has `words` words.
CompletionCall make_filler(const ProbeSizes& sizes, uint64_t index, int64_t words);

}  // namespace millrace
