// KvTier: where keys and values go that do not fit into the pool. Moves are tickets: put() and get() begin one, poll()
// tells how it stands, and no call waits for the other memory. A failed move is no error of a request: its tokens are
// computed again. Not thread-safe.
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

  // Begins to copy the blocks of `tokens` tokens out of the pool. They must not change before the ticket is ready; then
  // the pool may have them back. Errors: resource (no room).
  virtual Result<TierTicket> put(std::span<const BlockId> blocks, int64_t tokens) = 0;
  // Begins to copy a ready ticket's bytes into as many blocks. Errors: internal (no such ticket, other number of
  // blocks).
  virtual Result<void> get(TierTicket ticket, std::span<const BlockId> into) = 0;
  // Of the last put or get of the ticket.
  virtual TierState poll(TierTicket ticket) = 0;
  // Forgets the ticket; a move that is under way is given up and leaves the blocks alone from now on.
  virtual void erase(TierTicket ticket) = 0;
};

}  // namespace millrace
