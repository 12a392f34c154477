// AttentionWorkers: the engine's side of attention outside of its process (He and Zhai, 2024, "FastDecode"). The engine
// runs the matrices (the S-part); worker processes hold keys and values, and run attention over them (the R-part).
//
// Every worker holds a range of the KV heads of every layer, for all streams, in a pool with the block ids of the
// engine's own pool. Streams, block tables and prefixes need no placement, and workers have equal work for any mix of
// lengths. Workers run the kernels of the engine with the same partitions, so the bits are those of attention in place.
//
// A pass calls, on each lane (mini-batch): begin(), and for each layer store() and attend(). With two lanes, each is
// run by its own thread; the threads take turns: baton() is held by the one that computes, and attend() gives it to the
// other one while it waits. When all lanes have ended: take_failure().
//
// If a worker ends, answers late or answers wrongly, the rest of the pass computes zeros, take_failure() has the error,
// and everything that was stored is lost: streams with stored tokens must end. The next begin() starts new workers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "attention/full.h"
#include "attention/workers/lane_area.h"
#include "attention/workers/link.h"
#include "attention/workers/options.h"
#include "attention/workers/process.h"
#include "flow/batch.h"
#include "kv/pool.h"

namespace millrace {

struct AttentionWorkerFigures {
  int64_t workers = 0;
  int64_t starts = 0;          // number of processes or connections after the first ones
  int64_t bytes = 0;           // size of keys and values in all workers together
  int64_t sent_bytes = 0;      // rows and frames to workers
  int64_t received_bytes = 0;  // outputs from workers
  double wait_seconds = 0;     // that passes have waited in attend(), of all lanes together
};

class AttentionWorkers {
 public:
  // Heads of one attention layer of the model, of which those with the most values size the rows.
  struct Heads {
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
  };
  struct Sizes {
    KvLayout layout;  // all heads of the model
    int64_t blocks = 0;
    KvPoolOptions places;
    std::vector<Heads> heads;
    int64_t tokens = 0;
    int64_t context = 0;
    Isa isa;
  };

  // Returns the bytes of rows on their way, in all workers.
  static int64_t row_bytes(const AttentionWorkerOptions& options, const Sizes& sizes);
  // The layout of the engine's own pool: blocks are counted and have no bytes.
  static KvLayout without_rows(KvLayout layout);

  // Starts or connects the workers. Errors: user (options), unsupported, resource, network.
  static Result<std::unique_ptr<AttentionWorkers>> start(const AttentionWorkerOptions& options, Sizes sizes);
  ~AttentionWorkers();
  AttentionWorkers(const AttentionWorkers&) = delete;
  AttentionWorkers& operator=(const AttentionWorkers&) = delete;

  int64_t lanes() const { return options_.batches; }
  std::mutex& baton() { return baton_; }
  // true: until further notice several threads run lanes, each of which holds the baton while it computes.
  void take_turns(bool turns) { turns_ = turns; }

  // Sends the spans and tables of the pass, all of whose tokens see every earlier slot.
  void begin(int64_t lane, const Batch& batch);
  // Sends the rows of a layer: [tokens, kv_heads * head_dim] each.
  void store(int64_t lane, int64_t layer, int64_t tokens, const float* k, const float* v);
  // Sends the scaled queries of `batch`, tokens of the pass, and waits for the outputs, both [tokens, heads *
  // head_dim].
  void attend(int64_t lane, const Batch& batch, const AttentionLayer& layer, const float* q, float* out);

  // Waits until everything is stored. Errors: network, corrupt: with which all stored rows are lost.
  Result<void> take_failure();
  // Returns true once after rows were lost, also because a worker has ended between passes.
  bool take_loss();
  AttentionWorkerFigures figures() const;  // any thread

 private:
  struct Worker;
  AttentionWorkers(AttentionWorkerOptions options, Sizes sizes);
  Result<void> start_all();
  Result<void> start_one(int64_t index);
  WorkerSetup setup_of(int64_t index) const;
  void send(Worker& worker, FrameHeader header, std::span<const int64_t> words, std::span<const float> floats,
            int64_t outputs = 0);
  void wait_for(Worker& worker, int64_t lane);
  Result<void> read_answer(Worker& worker);
  Result<void> check_answer(Worker& worker, const FrameHeader& header);
  void flush(int64_t lane);
  void fail(const Error& error);

  AttentionWorkerOptions options_;
  Sizes sizes_;
  std::string program_;
  std::vector<std::unique_ptr<Worker>> workers_;
  FrameWriter words_;  // used by the lane that has the baton
  uint64_t sequence_ = 0;
  std::vector<uint8_t> unanswered_;  // by lane: rows are in its area that workers may not have read
  std::mutex baton_;
  bool turns_ = false;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<Error> error_;
  bool lost_ = false;
  std::atomic<int64_t> starts_{0};
  std::atomic<int64_t> sent_bytes_{0}, received_bytes_{0}, waited_ns_{0};
};

}  // namespace millrace
