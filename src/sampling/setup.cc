#include "sampling/setup.h"

namespace millrace {

SamplerSetup make_sampler_setup(const Request& request, const Tokenizer& tokenizer) {
  SamplerSetup setup;
  setup.options = request.sampling;
  setup.min_tokens = request.min_tokens;
  setup.bad_words = request.bad_words;
  setup.thinking = request.thinking;
  setup.tokenizer = &tokenizer;
  setup.ignore_eos = request.ignore_eos;
  setup.end_of_generation = tokenizer.spec().eog;
  if (!request.ignore_eos && request.min_tokens > 0)
    setup.end_of_generation.insert(setup.end_of_generation.end(), request.stop_tokens.begin(),
                                   request.stop_tokens.end());
  setup.vocab_size = tokenizer.vocab_size();
  if (request.sampling.dry_multiplier != 0) {
    setup.dry_breakers = tokenize_breakers(request.sampling.dry_breakers, tokenizer);
  }
  return setup;
}

std::vector<std::vector<TokenId>> tokenize_breakers(const std::vector<std::string>& breakers,
                                                    const Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> out;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    std::string piece = tokenizer.piece(token);
    for (const auto& breaker : breakers) {
      if (breaker.empty() || piece.find(breaker) == std::string::npos) continue;
      out.push_back({token});
      break;
    }
  }
  for (const auto& breaker : breakers) {
    auto tokens = tokenizer.encode(breaker, {.add_special = false, .parse_special = false});
    if (tokens.size() > 1) out.push_back(std::move(tokens));
  }
  return out;
}

}  // namespace millrace
