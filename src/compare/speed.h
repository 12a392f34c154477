// Speed of configurations side by side: in each round every configuration answers the same prompt once, one after the
// other (A B A B), so that other load on the machine affects all of them. An item is a round.
#pragma once

#include "compare/suite.h"

namespace millrace {

// Metrics of its plan, in this order.
inline constexpr size_t kPrefillMetric = 0, kDecodeMetric = 1, kTtftMetric = 2;  // tokens/s, tokens/s, milliseconds

// input.prompt tokens of --text, or of simple sentences, then input.generate generated ones, input.rounds times.
// Errors: user (they do not fit the context).
Result<std::unique_ptr<SuiteRun>> begin_speed(std::span<const CompareConfig> configs, const SuiteInput& input);

// The GB/s at which the machine reads as many bytes as a step of the model reads: from a cache if they fit there, as
// `millrace bench` measures it.
double measure_read_rate(const CompareConfig& config);
// Bound of the decoding speed at this rate, with the keys and values of `context` tokens. 0: not known.
double decode_roof_tokens_per_s(const CompareConfig& config, int64_t context, double gb_per_s);

// The text's first tokens, over and over if it has too few; of simple sentences if it is "".
Result<std::vector<TokenId>> timed_prompt(const LanguageModel& model, const std::string& text, int64_t tokens);

// Maximum number of bytes at one time of the keys and values of a stream of `longest` tokens with this prompt. Errors:
// user.
Result<int64_t> stream_kv_bytes(const CompareConfig& config, int64_t prompt, int64_t longest);

struct ConfigMemory {
  int64_t weights_bytes = 0;       // with those of the drafter's model
  int64_t kv_bytes_per_token = 0;  // bytes of a stored token
  int64_t kv_bytes = 0;            // stream_kv_bytes()
  int64_t peak_bytes = 0;          // weights and everything that an engine for one such stream allocates
};
// Errors: of the engine.
Result<ConfigMemory> measure_memory(const CompareConfig& config, int64_t prompt, int64_t longest);

}  // namespace millrace
