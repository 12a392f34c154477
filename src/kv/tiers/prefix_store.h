// PrefixStore: second-level cache for blocks evicted from the prefix index, loaded again when a prompt needs them. It
// never stalls a step: put() copies and returns, a lookup and a load are tickets. A block that cannot be stored is
// dropped, and one that does not load intact is recomputed; neither is an error. Not thread-safe: owned by the engine
// thread.
//
//   lookup() -> poll_lookup() ... ready: n blocks -> load() -> poll() ... ready        each within deadline_seconds(),
//        \-> erase()                                   \-> erase()                     which the caller enforces
//
// If the pool has recurrent layers, a store also holds copies of their states, each behind a block. A prefix then
// continues a stream only up to a block with a copy, and with all blocks before it.
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
  bool connected = true;     // false: a store on another machine that cannot be reached now
  int64_t capacity = 0;      // blocks; -1: not limited by this program
  int64_t blocks = 0;        // currently stored
  int64_t unread_slots = 0;  // slots whose records have not been scanned yet, after opening an existing file
  int64_t written_blocks = 0, written_bytes = 0;
  int64_t read_blocks = 0, read_bytes = 0;  // verified reads
  int64_t dropped_blocks = 0;               // not stored: too many writes in flight, or a write failed
  int64_t corrupt_blocks = 0;               // found damaged, at opening or at reading
  int64_t state_blocks = 0;                 // a copy of the recurrent state counts as this many blocks
};

// The recurrent state behind a block: the block's key, and a slot of the pool's states.
struct StateBehind {
  PrefixKey key = {};
  StateId slot = -1;  // -1: none
};

struct LookupProgress {
  TierState state = TierState::failed;  // busy or ready; failed: no such ticket
  int64_t blocks = 0;                   // when ready: number of leading blocks that are stored
};

struct LoadProgress {
  TierState state = TierState::failed;  // busy or ready; failed: no such ticket
  int64_t layers = 0;                   // loaded into the pool, for all blocks
  int64_t blocks = 0;                   // number of leading blocks that are whole and intact; final when ready
  double seconds = 0;                   // duration of the load; 0: not known
  bool state_arrived = false;           // when ready: the state is whole and intact, and so are all blocks
};

class PrefixStore {
 public:
  virtual ~PrefixStore() = default;

  // Begins to look for the leading blocks of the chain that are stored. Counts as a use of these. A store in this
  // process has the answer at once. `held`: the caller has that many of the first blocks, which are not looked for.
  // With recurrent layers, the answer is the longest such prefix, held blocks included, with a state behind it.
  virtual TierTicket lookup(std::span<const ChainLink> chain, int64_t held = 0) = 0;
  virtual LookupProgress poll_lookup(TierTicket ticket) = 0;
  // Looks up and waits for the answer, however long it takes; for tools and tests.
  int64_t find(std::span<const ChainLink> chain);
  // How long a caller waits for a lookup, and how long for a load, before it computes the tokens.
  virtual double deadline_seconds() const { return kNoDeadline; }
  static constexpr double kNoDeadline = 1e6;
  // Returns true if other engines read the store at the same time: blocks are then put as soon as they are computed.
  virtual bool is_shared() const { return false; }

  // Returns true if the blocks of the last lookup that was ready are to be loaded even if computing them seems faster.
  virtual bool always_loads() const { return false; }

  // Copies the block's bytes; the pool may reuse the block at once. If a stored block has not been verified since
  // startup, it is compared with these bytes, and rewritten if damaged. `wait`: wait for buffer space instead of
  // dropping the block.
  virtual void put(const ChainLink& link, BlockId block, bool wait) = 0;
  // Copies the state from its slot, unless it is stored. It is stored as a whole or not at all; `wait` as above. Only
  // with recurrent layers.
  virtual void put_state(const StateBehind& /*state*/, bool /*wait*/) {}
  // Returns true if a put() would find a buffer now.
  virtual bool has_room() { return true; }
  // Returns true if the block is stored, as far as is known without waiting. Does not count as a use.
  virtual bool holds(const ChainLink&) const { return false; }
  // Allows the store to write all blocks put since the last call; a store that packs blocks packs these together.
  virtual void flush() {}
  // Returns true if the store uses the attention mass of blocks (StagedBlock), which the engine then observes.
  virtual bool wants_importance() const { return false; }
  // The attention mass that was stored with the block; 0: not known, or not stored.
  virtual float importance(const ChainLink&) const { return 0; }

  // Begins to load blocks that a lookup has just found, or a subset, into as many blocks of the pool, and the state
  // into its slot, if there is one.
  virtual TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into,
                          const StateBehind& state = {}) = 0;
  virtual LoadProgress poll(TierTicket ticket) = 0;
  // Waits up to `seconds` until `layer` of all blocks is loaded or has failed; for loads that poll() knows. Returns
  // whether it is.
  virtual bool wait_layer(TierTicket ticket, int64_t layer, double seconds) = 0;
  // Discards the lookup or load; a load in flight no longer writes to the blocks.
  virtual void erase(TierTicket ticket) = 0;
  // Waits briefly for progress of a lookup or load, when there is nothing else to do.
  virtual void wait() = 0;
  virtual int64_t loading_blocks() const = 0;  // blocks whose loads are in flight

  virtual PrefixStoreStats stats() const = 0;
};

inline int64_t PrefixStore::find(std::span<const ChainLink> chain) {
  const TierTicket ticket = lookup(chain);
  LookupProgress progress = poll_lookup(ticket);
  for (; progress.state == TierState::busy; progress = poll_lookup(ticket)) wait();
  erase(ticket);
  return progress.blocks;
}

}  // namespace millrace
