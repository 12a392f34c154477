// Measures the speed of configurations. In each round, every configuration answers the same prompt once, one after the
// other (A B A B), so that other load on the machine affects all of them. An item of the suite is a round.
#pragma once

#include "compare/suite.h"

namespace millrace {

// Indices of the metrics in the suite's plan.
inline constexpr size_t kPrefillMetric = 0, kDecodeMetric = 1, kTtftMetric = 2;  // tokens/s, tokens/s, milliseconds

// Each of input.rounds rounds has a prompt of input.prompt tokens, from --text or of simple sentences, and generates
// input.generate tokens. The time to the first token includes the compression of the prompt. Errors: user (the tokens
// do not fit the context).
Result<std::unique_ptr<SuiteRun>> begin_speed(std::span<const CompareConfig> configs, const SuiteInput& input);

// Returns the rate in GB/s at which the machine can read the bytes of one step of the model, as in `millrace bench`. If
// the bytes fit into a cache, it is the cache's rate.
double measure_read_rate(const CompareConfig& config);
// Returns the upper bound of the decoding speed at this rate, with the keys and values of `context` tokens. 0: not
// known.
double decode_roof_tokens_per_s(const CompareConfig& config, int64_t context, double gb_per_s);

// Returns the first `tokens` tokens of the text, which is repeated if it is too short. If `text` is "", simple
// sentences are used.
Result<std::vector<TokenId>> timed_prompt(const LanguageModel& model, const std::string& text, int64_t tokens);

// Returns the peak bytes of the keys and values of a stream of `longest` tokens whose prompt has `prompt` tokens.
// Errors: user.
Result<int64_t> stream_kv_bytes(const CompareConfig& config, int64_t prompt, int64_t longest);

struct ConfigMemory {
  int64_t weights_bytes = 0;       // bytes of the weights, including the drafter's model
  int64_t kv_bytes_per_token = 0;  // bytes of a stored token
  int64_t kv_bytes = 0;            // stream_kv_bytes()
  int64_t peak_bytes = 0;  // bytes of the weights and of everything that an engine for one such stream allocates
};
// Errors: those of the engine.
Result<ConfigMemory> measure_memory(const CompareConfig& config, int64_t prompt, int64_t longest);

}  // namespace millrace
