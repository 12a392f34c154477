#include "kv/tiers/store_index.h"

#include <algorithm>
#include <utility>

namespace millrace {

void StoreIndex::restore(int64_t slot, StoreRecord&& record) {
  if (slot >= static_cast<int64_t>(slots_.size())) slots_.resize(static_cast<size_t>(slot) + 1);
  Slot& entry = slot_at(slot);
  entry.dirty = true;
  const uint64_t turn = std::min(record.sequence, kThisRun - 1);  // a file may hold any number
  sequence_ = std::max(sequence_, turn);
  auto [found, fresh] = slots_of_.try_emplace(record.key, slot);
  if (!fresh) {
    const int64_t before = found->second;
    if (slot_at(before).state == State::writing || slot_at(before).turn >= turn) return;
    dequeue(before);
    slot_at(before).state = State::free;
    slot_at(before).record = {};
    if (before < counted_ && slot_at(before).pins == 0) free_.push_back(before);
    found->second = slot;
  }
  entry.state = State::stored;
  entry.record = std::move(record);
  enqueue(slot, turn);
}

void StoreIndex::restored(int64_t slots) {
  known_ = std::max(known_, slots);
  for (; counted_ < static_cast<int64_t>(slots_.size()); ++counted_) {
    if (slot_at(counted_).state != State::free) continue;
    // The slot's record on disk is irrelevant or torn: zero it before the slot is used.
    slot_at(counted_).dirty = true;
    free_.push_back(counted_);
  }
}

void StoreIndex::enqueue(int64_t slot, uint64_t turn) {
  slot_at(slot).turn = turn;
  order_.insert({turn, slot});
}

int64_t StoreIndex::find(const ChainLink& link) const {
  const auto found = slots_of_.find(link.key);
  if (found == slots_of_.end()) return -1;
  const Slot& slot = slots_[static_cast<size_t>(found->second)];
  const bool same = slot.state == State::stored && slot.record.parent == link.parent &&
                    std::ranges::equal(slot.record.tokens, link.tokens);
  return same ? found->second : -1;
}

void StoreIndex::use(int64_t slot) {
  if (slot_at(slot).state != State::stored) return;
  dequeue(slot);
  enqueue(slot, ++turn_);
}

int64_t StoreIndex::reserve(const ChainLink& link, bool& dirty) {
  const int64_t slot = take_slot();
  if (slot >= 0) dirty = assign(slot, link);
  return slot;
}

int64_t StoreIndex::take_slot() {
  int64_t slot = -1;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (static_cast<int64_t>(slots_.size()) < known_) {
    slot = static_cast<int64_t>(slots_.size());
    slots_.emplace_back();
    counted_ = slot + 1;
  } else if (unknown() > 0) {
    return -1;  // free slots may still be unscanned: evict nothing for this block
  } else {
    const auto oldest = std::ranges::find_if(order_, [&](const auto& one) { return slot_at(one.second).pins == 0; });
    if (oldest == order_.end()) return -1;
    slot = oldest->second;
    slots_of_.erase(slot_at(slot).record.key);
    order_.erase(oldest);
  }
  slot_at(slot).state = State::writing;
  slot_at(slot).seen_whole = false;
  slot_at(slot).record = {};
  return slot;
}

bool StoreIndex::assign(int64_t slot, const ChainLink& link) {
  Slot& entry = slot_at(slot);
  entry.record = {++sequence_, link.key, link.parent, {link.tokens.begin(), link.tokens.end()}, {}, link.importance};
  slots_of_[link.key] = slot;
  return std::exchange(entry.dirty, true);
}

void StoreIndex::publish(int64_t slot, std::vector<uint64_t> sums) {
  Slot& entry = slot_at(slot);
  entry.record.sums = std::move(sums);
  entry.state = State::stored;
  entry.seen_whole = true;
  enqueue(slot, ++turn_);
}

bool StoreIndex::check(int64_t slot) {
  Slot& entry = slot_at(slot);
  if (entry.state != State::stored || entry.pins > 0) return false;
  dequeue(slot);
  entry.state = State::writing;
  return true;
}

void StoreIndex::drop(int64_t slot) {
  Slot& entry = slot_at(slot);
  if (entry.state == State::free) return;
  if (entry.state == State::stored) dequeue(slot);
  slots_of_.erase(entry.record.key);
  entry.state = State::free;
  entry.seen_whole = false;
  entry.record = {};
  if (entry.pins == 0) free_.push_back(slot);
}

}  // namespace millrace
