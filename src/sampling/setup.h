// Builds the input of the sampling steps from a request and a tokenizer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/request.h"
#include "sampling/step.h"
#include "text/tokenizer.h"

namespace millrace {

SamplerSetup make_sampler_setup(const Request& request, const Tokenizer& tokenizer);

// Returns the token sequences that break a DRY sequence: each single token whose text contains one of the `breakers`,
// and the tokens of each breaker that is encoded as several tokens. Scans the whole vocabulary.
std::vector<std::vector<TokenId>> tokenize_breakers(const std::vector<std::string>& breakers,
                                                    const Tokenizer& tokenizer);

}  // namespace millrace
