// StoreIndex: which slot of the prefix store holds which block, and which one is reused next. In memory only; after a
// restart it is filled from the file's records, from the first slot on, and may be used meanwhile: a slot whose record
// was not read yet is neither found nor given away. Not thread-safe.
//
//   free -> writing -> stored -> (least recently used, or bad) -> free
//              ^----------/  its bytes are compared with what they should be, and written again if they are not (check)
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

  // A file that was there before: no slot is known until its record was read.
  void forget_all() { known_ = 0; }
  // A good record of a slot that is not known yet. Of two records of one block the later one counts, but none counts
  // more than what was written or used since the start.
  void restore(int64_t slot, StoreRecord&& record);
  // The records of all slots below `slots` were handed over.
  void restored(int64_t slots);
  void restored() { restored(capacity_); }
  int64_t unknown() const { return capacity_ - known_; }
  void leave_out_unknown() { capacity_ = known_; }  // they cannot be read
  // Writes to come are numbered above this one, and above every record that is known.
  void number_above(uint64_t sequence) { sequence_ = std::max(sequence_, sequence); }

  // The slot that holds the block and is whole; -1: none does. A hit of the key is verified by parent and tokens.
  int64_t find(const ChainLink& link) const;
  bool known(const PrefixKey& key) const { return slots_of_.contains(key); }  // stored, or on its way
  void use(int64_t slot);                                                     // it is the last to be reused now

  // A slot to write the block into: a free one, or the least recently used; -1: none may go. `dirty`: its record on
  // disk is another block's.
  int64_t reserve(const ChainLink& link, bool& dirty);
  // The same in two steps, for those who want to choose among slots: a slot that is nobody's, and whose it becomes.
  int64_t take_slot();
  bool assign(int64_t slot, const ChainLink& link);  // whether the slot is dirty
  void publish(int64_t slot, std::vector<uint64_t> sums);
  void drop(int64_t slot);  // its bytes are bad, or were not written

  // Whether the stored bytes were seen to be whole since the start: read, or written.
  bool seen_whole(int64_t slot) const { return slots_[static_cast<size_t>(slot)].seen_whole; }
  void saw_whole(int64_t slot) { slot_at(slot).seen_whole = true; }
  // A stored block that nobody reads goes back to `writing`, with its record. False: somebody does.
  bool check(int64_t slot);

  void pin(int64_t slot) { ++slot_at(slot).pins; }  // is being read: not to be reused
  void unpin(int64_t slot) {
    if (--slot_at(slot).pins == 0 && slot_at(slot).state == State::free)
      free_.push_back(slot);  // was dropped meanwhile
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
  // Turns since the start are behind those that come from a file, which are its records' numbers.
  static constexpr uint64_t kThisRun = uint64_t{1} << 63;

  Slot& slot_at(int64_t slot) { return slots_[static_cast<size_t>(slot)]; }
  void enqueue(int64_t slot, uint64_t turn);
  void dequeue(int64_t slot) { order_.erase({slot_at(slot).turn, slot}); }

  int64_t capacity_, known_;
  int64_t counted_ = 0;  // slots below are in free_, or somebody's
  uint64_t sequence_ = 0, turn_ = kThisRun;
  std::vector<Slot> slots_;                       // as many as were ever used
  std::vector<int64_t> free_;                     // among them
  std::set<std::pair<uint64_t, int64_t>> order_;  // stored ones by turn, least recently used first
  std::unordered_map<PrefixKey, int64_t, PrefixKeyHash> slots_of_;
};

}  // namespace millrace
