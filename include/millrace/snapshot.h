// EngineSnapshot: the current state of an engine and its steps since the last snapshot, for monitoring. All lists are
// bounded, so the size does not grow with the queue, the pool or the time between two snapshots. A snapshot contains no
// text and no tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/events.h"

namespace millrace {

inline constexpr int64_t kMaxSnapshotSteps = 512;
inline constexpr int64_t kMaxSnapshotStreams = 64;
inline constexpr int64_t kMaxSnapshotCells = 8192;

// Times are seconds on the engine's clock; only differences are meaningful. 0: not yet.
struct StreamSnapshot {
  enum class Phase : uint8_t { waiting, running, held_back, swapping_out, swapped, loading, looking_up };

  RequestId request = 0;
  int64_t answer = 0;  // index among the request's answers
  Phase phase = Phase::waiting;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // prompt and answer tokens whose keys and values are stored
  int64_t cached_tokens = 0;    // prompt tokens found in the prefix cache
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   // drafted tokens that steps verified
  int64_t accepted_tokens = 0;  // drafted tokens that saved a step
  int64_t blocks = 0;           // KV cache blocks
  int64_t preemptions = 0;
  double submitted = 0, admitted = 0, first_token = 0;
  double ended = 0;  // if the stream has ended
};

struct ChunkSnapshot {
  RequestId request = 0;
  int64_t answer = 0;
  int64_t tokens = 0;
  bool prefill = false;  // prompt tokens, or tokens recomputed after a preemption
  bool sampled = false;  // the next token was sampled
};

struct StepSnapshot {
  int64_t number = 0;
  double began = 0, seconds = 0;  // times of the forward pass
  int64_t prefill_tokens = 0, decode_tokens = 0;
  int64_t streams = 0;
  int64_t admitted = 0, preempted = 0;
  std::vector<ChunkSnapshot> chunks;  // at most kMaxSnapshotStreams
};

// A run of `count` cells with consecutive ids and equal values. A cell shows one block of the KV pool; in a large pool,
// it stands for several blocks (EngineSnapshot::blocks_per_cell).
struct CellsSnapshot {
  int64_t count = 0;
  int64_t owner = -1;   // index in EngineSnapshot::streams of the first stream that holds the block; -1: none listed
  int64_t streams = 0;  // number of streams that hold the block
  bool cached = false;  // the prefix cache holds the block

  bool same(const CellsSnapshot& other) const {
    return owner == other.owner && streams == other.streams && cached == other.cached;
  }
};

struct EngineSnapshot {
  bool stopped = false;  // the engine has stopped; everything else is empty
  double now = 0;
  std::vector<StepSnapshot> steps;      // since the last snapshot, at most the latest kMaxSnapshotSteps
  int64_t steps_missed = 0;             // earlier steps since the last snapshot that do not fit
  std::vector<StreamSnapshot> streams;  // running ones by admission, then waiting ones by arrival
  int64_t streams_left_out = 0;
  std::vector<StreamSnapshot> ended;  // the latest streams that ended since the last snapshot
  std::vector<CellsSnapshot> cells;   // all blocks of the KV pool
  int64_t blocks_per_cell = 1;        // if greater than 1, a cell shows the one of its blocks that most streams hold
  int64_t block_tokens = 0;
  int64_t swap_free_tokens = 0;  // swap space left for preempted streams; 0: none, or full
};

}  // namespace millrace
