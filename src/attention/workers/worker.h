// AttentionWorker: the other side of AttentionWorkers (workers.h). It holds the keys and values of some KV heads of
// every layer, and computes attention with the kernels, partitions and order that the engine's own attention has, so
// that its outputs have the same bits. One thread calls it; attention runs on its own thread pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/full.h"
#include "attention/workers/lane_area.h"
#include "attention/workers/link.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kv/pool.h"

namespace millrace {

struct AttentionWorkerLimits {
  int64_t memory_bytes = 0;  // limit of keys, values and rows; 0: none
  int64_t threads = 0;       // 0: as many as the engine asks for
};

// Answers one engine until it closes the connection. `area_file`: the shared memory; -1: rows are in the frames.
// Returns without an error when the engine has ended. Errors: network, corrupt, resource, unsupported; the engine was
// told.
Result<void> serve_attention(WorkerLink& link, int area_file, const AttentionWorkerLimits& limits);

class AttentionWorker {
 public:
  // Errors: resource, unsupported (an instruction set that this machine lacks).
  static Result<std::unique_ptr<AttentionWorker>> create(WorkerSetup setup, int area_file,
                                                         const AttentionWorkerLimits& limits);

  const WorkerSetup& setup() const { return setup_; }
  const LaneAreas& areas() const { return areas_; }
  // The three requests. `words`: the integers of the frame. Errors: corrupt (a number out of range).
  Result<void> begin(int64_t lane, FrameReader words);
  Result<void> store(int64_t lane, FrameReader words);
  // Returns the number of floats of the outputs.
  Result<int64_t> attend(int64_t lane, FrameReader words);
  // The floats that a frame with these words brings, before it is run. Errors: corrupt.
  Result<int64_t> floats_of(FrameKind kind, FrameReader words) const;

 private:
  struct Lane {
    Batch batch;                                 // tables of all groups; spans of the request at hand
    std::vector<std::vector<BatchSpan>> stored;  // by group, the spans of the pass
    int64_t tokens = 0;
  };
  AttentionWorker(WorkerSetup setup, KernelTable kernels, KvPool pool, LaneAreas areas);
  const KvLayer* layer_at(int64_t layer) const;
  Result<AttentionLayer> read_layer(FrameReader& from) const;

  WorkerSetup setup_;
  KernelTable kernels_;
  KvPool kv_;
  LaneAreas areas_;
  ThreadPool threads_;
  std::vector<Lane> lanes_;
  std::vector<float> scratch_;
  std::vector<const uint8_t*> pointers_;
};

}  // namespace millrace
