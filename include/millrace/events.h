// TokenEvent: an engine's output for a request, one event per token.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "millrace/result.h"
#include "millrace/token.h"

namespace millrace {

using RequestId = uint64_t;

enum class FinishReason { none, stop, length, cancelled, time_limit, error };

inline const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::time_limit: return "time_limit";
    case FinishReason::error: return "error";
  }
  return "";
}

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;  // natural logarithm of its probability in the model's distribution, before any sampling step
};

inline constexpr int kDraftPositions = 64;  // positions behind a stream's last token that one draft may reach

struct RequestTimings {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    // prompt tokens found in the prefix cache
  int64_t left_out_tokens = 0;  // prompt tokens in the prefix store that were not fetched and are left out of attention
  int64_t kept_tokens = 0;      // tokens whose keys and values are stored at the end of the request
  int64_t evicted_tokens = 0;   // tokens whose keys and values the evictor has dropped
  int64_t evictions = 0;        // evictor decisions that dropped tokens
  int64_t generated_tokens = 0;
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;       // from the first generated token to the last
  double first_token_seconds = 0;  // from submission to the first token
  int64_t preemptions = 0;         // times the request's streams were preempted
  int64_t target_passes = 0;       // steps that generated tokens; without a drafter, one per token
  int64_t drafted_tokens = 0;      // drafted tokens that these steps verified
  int64_t accepted_tokens = 0;     // drafted tokens that saved a step
  // At index i: drafts whose token at position i was verified, and drafts whose token at position i was kept. Both are
  // as long as the longest draft.
  std::vector<int64_t> drafted_at, accepted_at;
};

struct TokenEvent {
  RequestId request = 0;
  int64_t answer = 0;    // index among the request's `n` answers
  TokenId token = -1;    // -1: no token; the event releases text held back for a stop string, or ends the answer
  std::string text;      // whole UTF-8 sequences; may be empty while bytes are held back
  TokenLogprob logprob;  // log-probability of `token`, if requested
  std::vector<TokenLogprob> top_logprobs;
  FinishReason finish = FinishReason::none;  // set on the last event of an answer
  double score = 0;                          // score of an answer selected by best_of or beams, on its last event
  bool end_token = false;                    // `token` is an end-of-generation token and not part of the answer
  std::string stopped_by;                    // the stop string that ended the answer; "": none
  bool last = false;                         // last event of the whole request
  int64_t made_ns = 0;                       // when the engine created the event, on its steady clock
  Error error;                               // if finish is error
  RequestTimings timings;  // complete on the last event; on an answer's first token, only the first two
};

}  // namespace millrace
