// EngineSnapshot: what an engine does at this moment and did since the last snapshot, for somebody who watches. Plain
// values with bounded lists: sizes do not grow with the queue, the pool or the time between two snapshots. No text and
// no token is in it.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/events.h"

namespace millrace {

inline constexpr int64_t kMaxSnapshotSteps = 512;
inline constexpr int64_t kMaxSnapshotStreams = 64;
inline constexpr int64_t kMaxSnapshotCells = 8192;

// Seconds are of the engine's clock; only differences mean something. 0: not yet.
struct StreamSnapshot {
  enum class Phase : uint8_t { waiting, running, held_back, swapping_out, swapped, loading };

  RequestId request = 0;
  int64_t answer = 0;  // which of the request's
  Phase phase = Phase::waiting;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // whose keys and values are stored, of prompt and answer
  int64_t cached_tokens = 0;    // of those, found in the prefix cache
  int64_t generated_tokens = 0;
  int64_t blocks = 0;  // of the KV cache
  int64_t preemptions = 0;
  double submitted = 0, admitted = 0, first_token = 0;
  double ended = 0;  // of a stream that has
};

struct ChunkSnapshot {
  RequestId request = 0;
  int64_t answer = 0;
  int64_t tokens = 0;
  bool prefill = false;  // they are of the prompt, or computed again
  bool sampled = false;  // the next token was chosen
};

struct StepSnapshot {
  int64_t number = 0;
  double began = 0, seconds = 0;  // of the forward pass
  int64_t prefill_tokens = 0, decode_tokens = 0;
  int64_t streams = 0;
  int64_t admitted = 0, preempted = 0;
  std::vector<ChunkSnapshot> chunks;  // at most kMaxSnapshotStreams
};

// `count` identical cells in a row, in order of their ids.
struct CellsSnapshot {
  int64_t count = 0;
  int64_t owner = -1;   // index into EngineSnapshot::streams of the first one that holds it; -1: none of those
  int64_t streams = 0;  // that hold it
  bool cached = false;  // the prefix cache holds it

  bool same(const CellsSnapshot& other) const {
    return owner == other.owner && streams == other.streams && cached == other.cached;
  }
};

struct EngineSnapshot {
  bool stopped = false;  // the engine has, and there is nothing to see
  double now = 0;
  std::vector<StepSnapshot> steps;      // since the last snapshot, the latest ones
  int64_t steps_missed = 0;             // those before them
  std::vector<StreamSnapshot> streams;  // first those that run, by admission, then those that wait, by arrival
  int64_t streams_left_out = 0;
  std::vector<StreamSnapshot> ended;  // since the last snapshot, the latest ones
  std::vector<CellsSnapshot> cells;   // of the pool's blocks
  int64_t blocks_per_cell = 1;        // more: a cell shows the one that most streams hold
  int64_t block_tokens = 0;
  int64_t swap_free_tokens = 0;  // room for streams that give way; 0: none, or full
};

}  // namespace millrace
