// StoreLoads: brings blocks of a prompt back from the prefix store. A stream is in phase `looking_up` until the store
// says which blocks it has, then in phase `loading` until these have arrived, and the other streams continue. When the
// rest of the load takes less time than the stream's next chunk, it joins them, and each layer's attention waits for
// that layer's keys and values. Blocks that are not loaded within the store's deadline, or not at all, are computed.
//
//   start() --> looking_up --> poll(): found --> loading --> poll(): ready, or the deadline --> running
//                   |                               |                                              ^
//                   |                               '--> join() for one step ----------------------+
//                   |                                    '--> part(): had no chunk                 |
//                   '---- nothing found, too slow to load, or the deadline ------------------------'
//
// In a joined step attention waits layer by layer, never beyond the load's deadline. If the chunk has run over damaged
// or missing bytes, it does not count.
//
// With recurrent layers, a load has blocks and the state behind the last one, in a slot that becomes a copy of the
// prefix index. It counts as a whole or not at all. Blocks that the index has are not loaded; it may have evicted the
// state behind them.
//
//   prompt  | computed | blocks of the index | blocks of the store, state | computed ...
#pragma once

#include <span>
#include <vector>

#include "engine/block_ledger.h"
#include "engine/loop_context.h"
#include "engine/prefix_cache.h"
#include "engine/state_copies.h"

namespace millrace {

class StoreLoads {
 public:
  // `fetch`: the share of a prompt's stored blocks that is loaded, in (0, 1].
  StoreLoads(LoopContext& loop, StreamLists& lists, BlockLedger& ledger, PrefixCache& cache, StateCopies& states,
             double fetch);
  ~StoreLoads();  // cancels the loads
  StoreLoads(const StoreLoads&) = delete;
  StoreLoads& operator=(const StoreLoads&) = delete;

  // Asks the store which of the stream's tokens behind its computed ones it has. These are loaded where that is faster
  // than computing them.
  void start(LiveStream& stream);
  // The stream is preempted or over while its blocks are looked up or loaded.
  void cancel(LiveStream& stream);
  void poll();
  void finish_all();  // waits for every lookup and load

  // For one step: streams that may run as if their blocks had arrived, and afterwards, those that had no chunk in it.
  void join();
  void part();
  // Around the forward pass. Afterwards `lost` is set for chunks that ran over damaged bytes.
  void begin_forward(std::span<const StepWork> work);
  void end_forward(std::span<StepWork> work);
  // After the streams' computed tokens are counted: the store receives the blocks that it lacks (store_repair.h).
  void repair_store(std::span<const StepWork> work);
  void flush();  // blocks put since the last call may be written

  bool any() const { return loads_ > 0 || lookups_ > 0; }
  void wait() { store_->wait(); }  // a little, for a lookup or load to progress
  KvStoreStats stats() const;

 private:
  int64_t deadline() const;
  double seconds_until(int64_t deadline) const;
  std::vector<ChainLink> missing_blocks(const LiveStream& stream) const;
  void poll_lookup(LiveStream& stream);
  void end_lookup(LiveStream& stream);
  void load(LiveStream& stream, int64_t found, int64_t held);
  double load_seconds(int64_t blocks) const;
  int64_t held_blocks(const LiveStream& stream) const;
  bool begin_state(LiveStream& stream, int64_t held);
  void end_state(LiveStream& stream, bool arrived);
  void wait_layer(int64_t layer);
  void give_up(PrefixLoad& load);
  bool may_join(const LiveStream& stream, int64_t layers) const;
  bool end(LiveStream& stream, LoadProgress progress);
  bool end_partial(LiveStream& stream, const LoadProgress& progress);
  bool end_joined(LiveStream& stream);

  LoopContext& loop_;
  StreamLists& lists_;
  BlockLedger& ledger_;
  PrefixCache& cache_;
  StateCopies& states_;
  PrefixStore* store_;  // the cache's; null: there is none, and nothing is ever loaded
  double fetch_;
  bool joins_early_ = false;         // the executor can wait for a layer
  int64_t lookups_ = 0, loads_ = 0;  // streams in these phases
  std::span<const StepWork> in_forward_;
};

}  // namespace millrace
