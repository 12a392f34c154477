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

// The tokens that break a DRY sequence: every token whose text contains one of the strings, as a sequence of one, and
// the tokenization of each string that takes several tokens. Scans the whole vocabulary.
std::vector<std::vector<TokenId>> tokenize_breakers(const std::vector<std::string>& breakers,
                                                    const Tokenizer& tokenizer);

}  // namespace millrace
