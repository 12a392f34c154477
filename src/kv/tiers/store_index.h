// StoreIndex: records which slot of the prefix store holds which block, and which slot is reused next. It is in memory
// only. After a restart it is filled from the file's records, starting at the first slot. It can be used meanwhile: a
// slot whose record has not been read yet is neither found nor reused. Not thread-safe.
//
//   free -> writing -> stored -> (least recently used, or bad) -> free
//              ^----------/  check(): the bytes are compared with the expected ones and rewritten if they differ
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "kv/tiers/store_format.h"

namespace millrace {

class StoreIndex {
 public:
  explicit StoreIndex(int64_t capacity) : capacity_(capacity), known_(capacity) {}

  // For an existing file: no slot is known until its record has been read.
  void forget_all() { known_ = 0; }
  // Adds a valid record of a slot that is not known yet. If a block has two records, the later one wins, but blocks
  // written or used since startup take precedence.
  void restore(int64_t slot, StoreRecord&& record);
  // The records of all slots below `slots` have been passed to restore().
  void restored(int64_t slots);
  void restored() { restored(capacity_); }
  int64_t unknown() const { return capacity_ - known_; }
  void leave_out_unknown() { capacity_ = known_; }  // they cannot be read
  // Later writes get sequence numbers above this one, and above those of all known records.
  void number_above(uint64_t sequence) { sequence_ = std::max(sequence_, sequence); }

  // The slot that holds the intact block; -1: none does. A hash hit is verified by parent and tokens.
  int64_t find(const ChainLink& link) const;
  bool known(const PrefixKey& key) const { return slots_of_.contains(key); }  // stored, or being written
  void use(int64_t slot);                                                     // makes it the most recently used

  // Reserves a slot to write the block into: a free one, or the least recently used; -1: none can be evicted. `dirty`:
  // its record on disk belongs to another block.
  int64_t reserve(const ChainLink& link, bool& dirty);
  // Variant of assignment in two steps, for callers that choose among slots: take an unassigned slot, then assign it.
  int64_t take_slot();
  bool assign(int64_t slot, const ChainLink& link);  // returns whether the slot is dirty
  void publish(int64_t slot, std::vector<uint64_t> sums);
  void drop(int64_t slot);  // its bytes are bad, or writing them failed

  // Returns true if the stored bytes were verified since startup, by reading or writing them.
  bool seen_whole(int64_t slot) const { return slots_[static_cast<size_t>(slot)].seen_whole; }
  void saw_whole(int64_t slot) { slot_at(slot).seen_whole = true; }
  // Returns a stored block that is not being read to `writing`, with its record. False: it is being read.
  bool check(int64_t slot);

  void pin(int64_t slot) { ++slot_at(slot).pins; }  // being read: must not be reused
  void unpin(int64_t slot) {
    if (--slot_at(slot).pins == 0 && slot_at(slot).state == State::free)
      free_.push_back(slot);  // was dropped while it was read
  }
  const StoreRecord& record(int64_t slot) const { return slots_[static_cast<size_t>(slot)].record; }

  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  int64_t capacity() const { return capacity_; }

 private:
  enum class State : uint8_t { free, writing, stored };
  struct Slot {
    State state = State::free;
    bool dirty = false;  // the record on disk is not zero
    bool seen_whole = false;
    int32_t pins = 0;
    StoreRecord record;
    uint64_t turn = 0;  // in order_, while stored
  };
  // Turns of this run exceed those restored from a file, which are the sequence numbers of the records.
  static constexpr uint64_t kThisRun = uint64_t{1} << 63;

  Slot& slot_at(int64_t slot) { return slots_[static_cast<size_t>(slot)]; }
  void enqueue(int64_t slot, uint64_t turn);
  void dequeue(int64_t slot) { order_.erase({slot_at(slot).turn, slot}); }

  int64_t capacity_, known_;
  int64_t counted_ = 0;  // slots below are in free_ or in use
  uint64_t sequence_ = 0, turn_ = kThisRun;
  std::vector<Slot> slots_;                       // as many as were ever used
  std::vector<int64_t> free_;                     // among them
  std::set<std::pair<uint64_t, int64_t>> order_;  // stored ones by turn, least recently used first
  std::unordered_map<PrefixKey, int64_t, PrefixKeyHash> slots_of_;
};

}  // namespace millrace
