// BeamGroup: the streams of one beam search. Each beam is a stream with blocks of its own behind those that it shares
// with the others; all go on by one token when the last of them knows its next ones.
//
//   slots   [s0 s1 s2 s3]   the request's streams, admitted together, s0 with the prompt
//   live    [s2 s0 s1]      those that are beams now, best first; the others are empty and wait to become one
#pragma once

#include <memory>
#include <vector>

#include "engine/beam_search.h"
#include "run/live_stream.h"

namespace millrace {

struct BeamGroup {
  BeamSearch search;
  int64_t wanted = 1;  // answers
  std::vector<LiveStream*> slots;
  std::vector<std::unique_ptr<LiveStream>> parked;  // all slots but the first, until it is admitted
  std::vector<LiveStream*> live;
  std::vector<std::vector<TokenLogprob>> candidates;  // of each live beam
  int64_t known = 0;                                  // live beams whose candidates are there
  bool finished = false;
};

}  // namespace millrace
