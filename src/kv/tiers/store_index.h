// StoreIndex: which slot of the prefix store holds which block, and which one is reused next. In memory only; after a
// restart it is filled from the file's records. Not thread-safe.
//
//   free -> writing -> stored -> (least recently used, or bad) -> free
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "kv/tiers/store_format.h"

namespace millrace {

class StoreIndex {
 public:
  explicit StoreIndex(int64_t capacity) : capacity_(capacity) {}

  // Of a file that was there before, in any order. Of two records of one block the later one counts.
  void restore(int64_t slot, StoreRecord&& record);
  void restored();  // after the last one

  // The slot that holds the block and is whole; -1: none does. A hit of the key is verified by parent and tokens.
  int64_t find(const ChainLink& link) const;
  bool known(const PrefixKey& key) const { return slots_of_.contains(key); }  // stored, or on its way
  void use(int64_t slot);  // it is the last to be reused now

  // A slot to write the block into: a free one, or the least recently used; -1: none may go. `dirty`: its record on disk
  // is another block's.
  int64_t reserve(const ChainLink& link, bool& dirty);
  // The same in two steps, for those who want to choose among slots: a slot that is nobody's, and whose it becomes.
  int64_t take_slot();
  bool assign(int64_t slot, const ChainLink& link);  // whether the slot is dirty
  void publish(int64_t slot, std::vector<uint64_t> sums);
  void drop(int64_t slot);  // its bytes are bad, or were not written

  void pin(int64_t slot) { ++slot_at(slot).pins; }  // is being read: not to be reused
  void unpin(int64_t slot) {
    if (--slot_at(slot).pins == 0 && slot_at(slot).state == State::free) free_.push_back(slot);  // was dropped meanwhile
  }
  const StoreRecord& record(int64_t slot) const { return slots_[static_cast<size_t>(slot)].record; }

  int64_t size() const { return stored_; }
  int64_t capacity() const { return capacity_; }

 private:
  enum class State : uint8_t { free, writing, stored };
  struct Slot {
    State state = State::free;
    bool dirty = false;  // the record on disk is not zero
    int32_t pins = 0;
    StoreRecord record;
    std::list<int64_t>::iterator place;  // in order_, while stored
  };
  Slot& slot_at(int64_t slot) { return slots_[static_cast<size_t>(slot)]; }

  int64_t capacity_;
  int64_t stored_ = 0;
  uint64_t sequence_ = 0;
  std::vector<Slot> slots_;      // as many as were ever used
  std::vector<int64_t> free_;    // among them
  std::list<int64_t> order_;     // stored ones, least recently used first
  std::unordered_map<PrefixKey, int64_t, PrefixKeyHash> slots_of_;
};

}  // namespace millrace
