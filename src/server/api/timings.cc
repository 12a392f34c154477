// llama-server's `timings` of an answer: with the drafted tokens once there are any, and those that an evictor dropped.
#include "server/api/api.h"

namespace millrace {
namespace {

double per_second(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

}  // namespace

Json timings_json(const Answer& answer) {
  const RequestTimings& t = answer.timings;
  const int64_t prompt = answer.prompt_tokens - answer.cached_tokens;
  Json out = {{"cache_n", answer.cached_tokens},
              {"prompt_n", prompt},
              {"prompt_ms", t.prefill_seconds * 1e3},
              {"prompt_per_token_ms", prompt > 0 ? t.prefill_seconds * 1e3 / static_cast<double>(prompt) : 0},
              {"prompt_per_second", per_second(prompt, t.prefill_seconds)},
              {"predicted_n", answer.generated_tokens},
              {"predicted_ms", t.decode_seconds * 1e3},
              {"predicted_per_token_ms",
               answer.generated_tokens > 0 ? t.decode_seconds * 1e3 / static_cast<double>(answer.generated_tokens) : 0},
              {"predicted_per_second", per_second(answer.generated_tokens, t.decode_seconds)}};
  int64_t drafted = 0, accepted = 0;
  for (const Choice& choice : answer.choices) {
    drafted += choice.drafted_tokens;
    accepted += choice.accepted_tokens;
  }
  if (drafted > 0) {
    out["draft_n"] = drafted;
    out["draft_n_accepted"] = accepted;
  }
  if (t.evictions > 0) {  // no field of llama-server
    out["kept_n"] = t.kept_tokens;
    out["evicted_n"] = t.evicted_tokens;
  }
  return out;
}

}  // namespace millrace
