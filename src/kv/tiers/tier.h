// KvTier: storage for keys and values that do not fit into the pool. Moves are tickets: put() and get() begin one,
// poll() returns its state, and no call waits for the other memory. A failed move is not a request error: its tokens
// are recomputed. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "kv/pool.h"

namespace millrace {

using TierTicket = uint64_t;  // 0: none
enum class TierState { busy, ready, failed };

class KvTier {
 public:
  virtual ~KvTier() = default;
  virtual int64_t free_tokens() const = 0;

  // Begins to copy the blocks of `tokens` tokens out of the pool. They must not change until the ticket is ready; then
  // the pool may reuse them. Errors: resource (no room).
  virtual Result<TierTicket> put(std::span<const BlockId> blocks, int64_t tokens) = 0;
  // Begins to copy a ready ticket's bytes into as many blocks. Errors: internal (no such ticket, different number of
  // blocks).
  virtual Result<void> get(TierTicket ticket, std::span<const BlockId> into) = 0;
  // State of the ticket's last put or get.
  virtual TierState poll(TierTicket ticket) = 0;
  // Discards the ticket; a move in flight is abandoned and no longer touches the blocks.
  virtual void erase(TierTicket ticket) = 0;
};

}  // namespace millrace
