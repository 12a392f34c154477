// StoreLoads: brings blocks of a prompt back from the prefix store. A stream is in phase `loading` until its blocks
// have arrived, and the other streams continue; when the rest of the load takes less time than its next chunk, it joins
// them, and each layer's attention waits for that layer's keys and values. What cannot be loaded is computed.
//
//   start() --> loading --> poll(): ready --> running
//                  |                             ^
//                  '--> join() for one step -----'  attention waits layer by layer; over damaged bytes the chunk does
//                       '--> part(): had no chunk   not count
#pragma once

#include <span>
#include <vector>

#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "engine/prefix_cache.h"

namespace millrace {

class StoreLoads {
 public:
  // `fetch`: the share of a prompt's stored blocks that is loaded, in (0, 1].
  StoreLoads(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, PrefixCache& cache, double fetch);
  ~StoreLoads();  // cancels the loads
  StoreLoads(const StoreLoads&) = delete;
  StoreLoads& operator=(const StoreLoads&) = delete;

  // Begins to load what the store has of the stream's tokens behind its computed ones, where that is faster than
  // computing them.
  void start(LiveStream& stream);
  // The stream is preempted or over while its blocks are being loaded.
  void cancel(LiveStream& stream);
  void poll();
  void finish_all();  // waits for every load

  // For one step: streams that may run as if their blocks had arrived, and afterwards, those that had no chunk in it.
  void join();
  void part();
  // Around the forward pass. Afterwards `lost` is set for chunks that ran over damaged bytes.
  void begin_forward(std::span<const StepWork> work);
  void end_forward(std::span<StepWork> work);
  // After the streams' computed tokens are counted: the store gets blocks that it lacks (store_repair.h).
  void repair_store(std::span<const StepWork> work);
  void flush();  // blocks put since the last call may be written

  bool any() const { return loads_ > 0; }
  void wait() { store_->wait(); }  // a little, for a load to progress
  KvStoreStats stats() const;

 private:
  std::vector<size_t> choose(const LiveStream& stream, std::span<const ChainLink> found) const;
  void take_importance(LiveStream& stream, std::span<const ChainLink> blocks) const;
  bool may_join(const LiveStream& stream, int64_t layers) const;
  bool end(LiveStream& stream, const LoadProgress& progress);
  bool end_partial(LiveStream& stream, const LoadProgress& progress);
  bool end_joined(LiveStream& stream);

  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  PrefixCache& cache_;
  PrefixStore* store_;  // the cache's; null: there is none, and nothing is ever loaded
  double fetch_;
  bool joins_early_ = false;  // the executor can wait for a layer
  int64_t loads_ = 0;
  std::span<const StepWork> in_forward_;
};

}  // namespace millrace
