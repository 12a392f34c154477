// DraftModel: the second model of a drafter that has one. An executor loads it and runs it over the KV blocks of the
// engine's model, on the same threads: its layers are further planes of the same blocks, so both models' keys and
// values follow the blocks of a stream. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "flow/sequence.h"

namespace millrace {

struct ExecutorStream;  // run/executor_stream.h: the executor's data of the stream

// Predictions of the model behind one token.
struct DraftPick {
  TokenId drawn = 0;  // with the stream's sampling and random numbers
  // Share in the model's distribution before the sampling. For a token that is not among the likeliest, the share of
  // the last of these, which is no smaller. Set only if the run weighs, as are the next two.
  float drawn_share = 0;
  std::array<TokenId, 4> likely = {};  // the likeliest tokens of it, best first ...
  std::array<float, 4> share = {};     // ... and their shares; 0: there is none
};

// A stream's part of one pass: its tokens [first, first + count), in which its draft follows its own tokens.
//
// A draft of several branches is that many chains side by side: level by level, so that drafted token i follows token
// i - branches. The run of the stream's own tokens draws the first level from its last row; the run of a level draws
// the next one, a token from each row.
struct DraftRun {
  ExecutorStream* owner = nullptr;
  const Sequence* stream = nullptr;
  int64_t first = 0;
  int64_t count = 0;
  bool draws = false;       // draws the token after the last one, with the stream's sampling
  TokenId drawn = 0;        // set by run(); of several branches, the first one's
  int64_t branches = 1;     // branches of the draft
  std::span<TokenId> more;  // set by run(): the tokens drawn for branches 1, 2, ...; in a level for those that it runs
  bool weighs = false;      // run() sets the picks' shares; without picks, the confidence
  float confidence = 1;     // the model's probability of its likeliest next token, before the stream's sampling
  // Picks behind each of the run's last tokens, if tokens are drawn behind more than the last one. Its tokens have no
  // odds. Not for loader "self", nor for several branches.
  std::span<DraftPick> picks = {};
};

// A stream's chunk of the step. Its blocks cover the chunk.
struct DraftChunk {
  ExecutorStream* owner = nullptr;
  Sequence* stream = nullptr;
  int64_t first = 0;    // the chunk's first token
  int64_t own = 0;      // tokens of the stream
  int64_t drafted = 0;  // tokens of its draft, which follow them
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;
  // One pass. In all at most the tokens of a step and ModelPart::rows for each stream. Allocates nothing once
  // warm.
  virtual void run(std::span<DraftRun> runs) = 0;
};

}  // namespace millrace
