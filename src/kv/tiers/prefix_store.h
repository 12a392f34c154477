// PrefixStore: where blocks go that leave the prefix index, and come back from when a prompt asks for them. It never
// holds up a step: put() copies and returns, a load is a ticket. What cannot be stored is dropped, what does not come
// back whole is computed again; neither is anybody's error. Not thread-safe: the engine thread's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kv/pool.h"
#include "kv/prefix_key.h"
#include "kv/tiers/tier.h"

namespace millrace {

struct PrefixStoreStats {
  std::string_view io;       // "io_uring", "pread"; a literal
  bool direct = false;       // past the page cache
  int64_t capacity = 0;      // blocks
  int64_t blocks = 0;        // stored now
  int64_t unread_slots = 0;  // what they hold is not known yet: the file was opened a moment ago
  int64_t written_blocks = 0, written_bytes = 0;
  int64_t read_blocks = 0, read_bytes = 0;  // that passed their sums
  int64_t dropped_blocks = 0;               // not stored: too many writes were under way, or one failed
  int64_t corrupt_blocks = 0;               // found damaged, when the file was opened or when they were read
};

struct LoadProgress {
  TierState state = TierState::failed;  // busy or ready; failed: no such ticket
  int64_t layers = 0;                   // of all blocks, that are in the pool
  int64_t blocks = 0;                   // when ready: the first so many are whole
  double seconds = 0;                   // that it took; 0: not known
};

class PrefixStore {
 public:
  virtual ~PrefixStore() = default;

  // How many of the chain's blocks from its first on are stored. Counts as a use of these.
  virtual int64_t find(std::span<const ChainLink> chain) = 0;
  // Copies the block's bytes; the pool may have it back at once. A block that is stored already, but was not seen to be
  // whole since the start, is compared with them and written again where it is damaged. With `wait` it waits for room
  // instead of dropping.
  virtual void put(const ChainLink& link, BlockId block, bool wait) = 0;
  // Whether a put() now would find room to copy to.
  virtual bool has_room() { return true; }
  // Whether the block is stored. No use of it.
  virtual bool holds(const ChainLink&) const { return false; }
  // What was put since the last call may be written now: a store that packs blocks packs these together.
  virtual void flush() {}
  // The attention mass that a stored block was put with; 0: not known, or it is not stored.
  virtual float importance(const ChainLink&) const { return 0; }

  // Begins to copy blocks that find() just found, or some of them, into as many of the pool's.
  virtual TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into) = 0;
  virtual LoadProgress poll(TierTicket ticket) = 0;
  // Waits until `layer` of all blocks is there or can never be; for loads that poll() knows.
  virtual void wait_layer(TierTicket ticket, int64_t layer) = 0;
  // Forgets the load; one that is under way leaves the blocks alone from now on.
  virtual void erase(TierTicket ticket) = 0;
  // Waits a little for a load to move on, when there is nothing else to do.
  virtual void wait() = 0;
  virtual int64_t loading_blocks() const = 0;  // of loads that are under way

  virtual PrefixStoreStats stats() const = 0;
};

}  // namespace millrace
