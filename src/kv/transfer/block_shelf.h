// BlockShelf: images of blocks in memory that other processes read. The memory is one file without a name, so that
// processes on this machine can map it. Blocks that no lease holds are evicted, least recently used first; a block that
// is held stays until the lease ends. A tenant's blocks take at most a share of the memory. Thread-safe.
//
//   capacity = free + held + idle bytes, at any time
//
// A block's image names its previous block, and a prompt's first block names the tenant's scope in place of it
// (prefix_key.h). So the shelf knows a block's tenant if it has the blocks before it; the others form a tenant
// together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "base/result.h"
#include "kv/prefix_key.h"
#include "kv/tiers/block_image.h"

namespace millrace {

struct ShelfBlock {
  StoreIdentity identity;
  PrefixKey key;
  bool operator==(const ShelfBlock&) const = default;
};

struct ShelfStats {
  int64_t capacity = 0, free = 0, held = 0, idle = 0;  // bytes
  int64_t blocks = 0;
  int64_t leases = 0;  // now
  int64_t stored_blocks = 0, read_blocks = 0, read_bytes = 0;
  int64_t evicted_blocks = 0;
  int64_t refused_blocks = 0;  // no room: everything is held, or the tenant has its share
  int64_t refused_reads = 0;   // reads of blocks that the lease does not cover
  int64_t expired_leases = 0;  // that ended by time
};

class BlockShelf {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    int64_t bytes = int64_t{1} << 30;
    double tenant_share = 1;    // the part of the memory that one tenant's blocks may take
    double lease_seconds = 30;  // that a block is held without being read
  };
  // Errors: resource.
  static Result<std::unique_ptr<BlockShelf>> create(const Options& options);
  ~BlockShelf();
  BlockShelf(const BlockShelf&) = delete;
  BlockShelf& operator=(const BlockShelf&) = delete;

  // Stores a block of `bytes`, unless it is there: `fill` writes its image. Returns false if there is no room.
  bool put(const ShelfBlock& block, const PrefixKey& parent, int64_t bytes,
           const std::function<void(std::span<uint8_t>)>& fill);
  bool holds(const ShelfBlock& block) const;

  // Begins a lease on blocks with these keys, and on pieces of the states behind them: those that are there are held.
  // Returns its number, which is hard to guess.
  uint64_t lease(std::span<const PrefixKey> keys);
  // Begins a lease without blocks, for a reader that may read every block. It ends with end(); each block that it holds
  // is held for the time of a lease since it was asked for last.
  uint64_t open_lease();
  // Returns true if the block is there and the lease covers it. It is held from now on, and the lease renewed.
  bool hold(uint64_t lease, const ShelfBlock& block);
  // Calls `read` with the image and its place if hold() would return true. Returns whether it did.
  bool read(uint64_t lease, const ShelfBlock& block,
            const std::function<void(std::span<const uint8_t> image, uint64_t offset)>& read);
  // The reader has the block, which the lease holds no longer; or the reader needs no more blocks, which ends the
  // lease.
  void done(uint64_t lease, const ShelfBlock& block);
  void end(uint64_t lease);

  int memory_file() const { return file_; }
  uint64_t memory_bytes() const { return static_cast<uint64_t>(options_.bytes); }
  ShelfStats stats();

 private:
  struct BlockHash {
    size_t operator()(const ShelfBlock& block) const { return block.key.low ^ block.identity.low; }
  };
  struct Entry {
    int64_t offset = 0, bytes = 0;
    PrefixKey parent;
    uint64_t tenant = 0;
    int64_t holds = 0;  // leases that hold it
    std::list<ShelfBlock>::iterator place;
  };
  struct Lease {
    bool every = false;                                                 // may read every block
    std::unordered_set<PrefixKey, PrefixKeyHash> keys;                  // that it covers
    std::unordered_map<ShelfBlock, Clock::time_point, BlockHash> held;  // with the ends of their times
    Clock::time_point until;  // when it ends, or with `every` when the first of its blocks is let go
  };
  explicit BlockShelf(const Options& options) : options_(options) {}
  Result<void> map();
  uint64_t tenant_of(const ShelfBlock& block, const PrefixKey& parent) const;
  int64_t take(int64_t bytes);
  void give(int64_t offset, int64_t bytes);
  bool make_room(int64_t bytes, uint64_t tenant, int64_t& offset);
  bool evict(const uint64_t* tenant);
  void erase(const ShelfBlock& block);
  Entry* covered(uint64_t lease, const ShelfBlock& block);
  void hold_entry(Lease& lease, const ShelfBlock& block, Entry& entry);
  void let_go(const ShelfBlock& block);
  void release(Lease& lease);
  void release_late(Lease& lease, Clock::time_point now);
  void expire();
  Clock::time_point lease_end() const;

  const Options options_;
  int file_ = -1;
  uint8_t* memory_ = nullptr;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> gaps_;  // offset and bytes of free memory
  std::unordered_map<ShelfBlock, Entry, BlockHash> entries_;
  std::list<ShelfBlock> order_;                    // least recently used first
  std::unordered_map<uint64_t, int64_t> tenants_;  // bytes of each
  std::unordered_map<uint64_t, Lease> leases_;
  ShelfStats stats_;
};

}  // namespace millrace
