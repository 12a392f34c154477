// DraftModel: the second model, with which a ModelDrafter drafts. An executor loads it and runs it on the threads of
// the engine's model. Its layers are additional planes of the same KV blocks, so both models' keys and values follow a
// stream's blocks. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "flow/sequence.h"

namespace millrace {

struct ExecutorStream;  // run/executors/executor_stream.h: the executor's data of the stream

// Predictions of the draft model for the token after one token.
struct DraftPick {
  TokenId drawn = 0;  // drawn with the stream's sampling and random numbers
  // Probability of `drawn` before the stream's sampling. If `drawn` is not in `likely`, this is the share of the last
  // token of `likely`, an upper bound. drawn_share, `likely` and `share` are set only if DraftRun::weighs.
  float drawn_share = 0;
  std::array<TokenId, 4> likely = {};  // the model's likeliest tokens, best first
  std::array<float, 4> share = {};     // probabilities of `likely`; 0: no token
};

// A stream's part of one pass: tokens [first, first + count), numbered with the draft behind the stream's own tokens.
//
// A draft of several branches consists of chains side by side, stored level by level: drafted token i follows drafted
// token i - branches. The run over the stream's own tokens draws the first level from its last row. The run over a
// level draws the next level, one token from each row.
struct DraftRun {
  ExecutorStream* owner = nullptr;
  const Sequence* stream = nullptr;
  int64_t first = 0;
  int64_t count = 0;
  bool draws = false;    // true: draws the token after the last one, with the stream's sampling
  TokenId drawn = 0;     // set by run(): the drawn token, of the first branch
  int64_t branches = 1;  // branches of the draft
  // Set by run(): tokens drawn for branches 1, 2, ...; in a level's run, for the branches that run.
  std::span<TokenId> more;
  bool weighs = false;   // true: run() sets the shares of `picks`, or `confidence` if there are no picks
  float confidence = 1;  // the model's highest probability of a next token, before the stream's sampling
  // Set by run() if not empty: the picks behind each of the run's last picks.size() tokens. Tokens drawn this way have
  // no odds. Not for loader "self" or several branches.
  std::span<DraftPick> picks = {};
};

// A stream's chunk of the step. The stream's blocks cover the chunk.
struct DraftChunk {
  ExecutorStream* owner = nullptr;
  Sequence* stream = nullptr;
  int64_t first = 0;    // the chunk's first token
  int64_t own = 0;      // number of the stream's own tokens
  int64_t drafted = 0;  // number of drafted tokens, which follow them
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;
  // Runs one pass. All runs together have at most the tokens of a step plus ModelPart::rows for each stream. Allocates
  // nothing after the first passes.
  virtual void run(std::span<DraftRun> runs) = 0;
};

}  // namespace millrace
