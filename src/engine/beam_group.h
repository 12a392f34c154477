// BeamGroup: the streams of one beam search. Each beam is a stream with its own blocks behind those that it shares with
// the other beams. All beams advance by one token when the candidates of the last one are known.
//
//   slots   [s0 s1 s2 s3]   the request's streams, admitted together, s0 with the prompt
//   live    [s2 s0 s1]      those that are beams now, best first; the others are empty until a beam forks into them
#pragma once

#include <memory>
#include <vector>

#include "engine/beam_search.h"
#include "engine/live_stream.h"

namespace millrace {

struct BeamGroup {
  BeamSearch search;
  int64_t wanted = 1;  // answers
  std::vector<LiveStream*> slots;
  std::vector<std::unique_ptr<LiveStream>> parked;  // all slots but the first, until it is admitted
  std::vector<LiveStream*> live;
  std::vector<std::vector<TokenLogprob>> candidates;  // candidates of each live beam
  int64_t known = 0;                                  // live beams whose candidates have arrived
  bool finished = false;
};

// An empty slot: a stream without tokens, of which the planner has nothing to run.
inline void empty_slot(Sequence& s) {
  s.tokens.clear();
  s.prompt_tokens = s.computed = 0;
}

}  // namespace millrace
