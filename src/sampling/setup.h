// From a request and a tokenizer to what the sampling steps are made from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/request.h"
#include "sampling/step.h"
#include "text/tokenizer.h"

namespace millrace {

SamplerSetup make_sampler_setup(const Request& request, const Tokenizer& tokenizer);

// The tokens that break a DRY sequence: every token whose text contains one of the strings, by itself, and the token
// sequence of each string that takes several tokens. Looks at the whole vocabulary.
std::vector<std::vector<TokenId>> tokenize_breakers(const std::vector<std::string>& breakers,
                                                    const Tokenizer& tokenizer);

}  // namespace millrace
