// LaneArea: the rows of one mini-batch on their way to a worker and back. With shared memory, engine and worker map the
// same file, which has the areas of all lanes; without, each end has its own.
//
//   lane 0: [keys | values | sinks, queries | outputs]   lane 1: ...
#pragma once

#include <cstdint>
#include <span>

#include "attention/workers/frames.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class LaneAreas {
 public:
  // Bytes of all lanes of a worker.
  static int64_t bytes(const WorkerSetup& setup) {
    return 4 * setup.lanes * (2 * keys(setup) + queries(setup) + outputs(setup));
  }

  LaneAreas() = default;
  ~LaneAreas() { unmap(); }
  LaneAreas(LaneAreas&& other) noexcept { *this = std::move(other); }
  LaneAreas& operator=(LaneAreas&& other) noexcept;

  // Memory of this process. Errors: resource.
  static Result<LaneAreas> create(const WorkerSetup& setup);
  // Maps a file of at least bytes(). Errors: resource, corrupt (a shorter file).
  static Result<LaneAreas> map(const WorkerSetup& setup, int file);
  // Creates the file, without a name, of which the caller closes the descriptor. Errors: resource.
  static Result<int> create_file(const WorkerSetup& setup);

  // Keys and then values of at most setup.tokens tokens.
  float* keys(int64_t lane) const { return lane_at(lane); }
  // Sinks of the heads, and then queries.
  float* queries(int64_t lane) const { return lane_at(lane) + 2 * keys_; }
  float* outputs(int64_t lane) const { return lane_at(lane) + 2 * keys_ + queries_; }

 private:
  static int64_t rounded(int64_t floats) { return (floats + 15) / 16 * 16; }
  static int64_t keys(const WorkerSetup& setup) { return rounded(setup.tokens * setup.kv_width); }
  static int64_t queries(const WorkerSetup& setup) { return rounded((setup.tokens + 1) * setup.q_width); }
  static int64_t outputs(const WorkerSetup& setup) { return rounded(setup.tokens * setup.q_width); }
  explicit LaneAreas(const WorkerSetup& setup)
      : keys_(keys(setup)), queries_(queries(setup)), outputs_(outputs(setup)) {}
  float* lane_at(int64_t lane) const { return floats_ + lane * (2 * keys_ + queries_ + outputs_); }
  void unmap();

  int64_t keys_ = 0, queries_ = 0, outputs_ = 0;
  AlignedBuffer own_;
  float* floats_ = nullptr;
  int64_t mapped_bytes_ = 0;  // 0: the memory is own_
};

}  // namespace millrace
