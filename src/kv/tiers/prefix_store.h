// PrefixStore: second-level cache for blocks evicted from the prefix index, loaded again when a prompt needs them. It
// never stalls a step: put() copies and returns, a load is a ticket. A block that cannot be stored is dropped, and one
// that does not load intact is recomputed; neither is an error. Not thread-safe: owned by the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kv/pool.h"
#include "kv/prefix_key.h"
#include "kv/tiers/tier.h"

namespace millrace {

struct PrefixStoreStats {
  std::string_view io;       // "io_uring", "pread"; a string literal
  bool direct = false;       // bypasses the page cache
  int64_t capacity = 0;      // blocks
  int64_t blocks = 0;        // currently stored
  int64_t unread_slots = 0;  // slots whose records have not been scanned yet, after opening an existing file
  int64_t written_blocks = 0, written_bytes = 0;
  int64_t read_blocks = 0, read_bytes = 0;  // verified reads
  int64_t dropped_blocks = 0;               // not stored: too many writes in flight, or a write failed
  int64_t corrupt_blocks = 0;               // found damaged, at opening or at reading
};

struct LoadProgress {
  TierState state = TierState::failed;  // busy or ready; failed: no such ticket
  int64_t layers = 0;                   // loaded into the pool, for all blocks
  int64_t blocks = 0;                   // when ready: number of leading blocks that are intact
  double seconds = 0;                   // duration of the load; 0: not known
};

class PrefixStore {
 public:
  virtual ~PrefixStore() = default;

  // The number of leading blocks of the chain that are stored. Counts as a use of these.
  virtual int64_t find(std::span<const ChainLink> chain) = 0;
  // Copies the block's bytes; the pool may reuse the block at once. If a stored block has not been verified since
  // startup, it is compared with these bytes, and rewritten if damaged. `wait`: wait for buffer space instead of
  // dropping the block.
  virtual void put(const ChainLink& link, BlockId block, bool wait) = 0;
  // Returns true if a put() would find a buffer now.
  virtual bool has_room() { return true; }
  // Returns true if the block is stored. Does not count as a use.
  virtual bool holds(const ChainLink&) const { return false; }
  // Allows the store to write all blocks put since the last call; a store that packs blocks packs these together.
  virtual void flush() {}
  // Returns true if the store uses the attention mass of blocks (StagedBlock), which the engine then observes.
  virtual bool wants_importance() const { return false; }
  // The attention mass that was stored with the block; 0: not known, or not stored.
  virtual float importance(const ChainLink&) const { return 0; }

  // Begins to load blocks that find() just returned, or a subset, into as many blocks of the pool.
  virtual TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into) = 0;
  virtual LoadProgress poll(TierTicket ticket) = 0;
  // Waits until `layer` of all blocks is loaded or has failed; for loads that poll() knows.
  virtual void wait_layer(TierTicket ticket, int64_t layer) = 0;
  // Discards the load; if it is in flight, it no longer writes to the blocks.
  virtual void erase(TierTicket ticket) = 0;
  // Waits briefly for progress of a load, when there is nothing else to do.
  virtual void wait() = 0;
  virtual int64_t loading_blocks() const = 0;  // blocks whose loads are in flight

  virtual PrefixStoreStats stats() const = 0;
};

}  // namespace millrace
