#include "kv/tiers/store_index.h"

#include <algorithm>
#include <utility>

namespace millrace {

void StoreIndex::restore(int64_t slot, StoreRecord&& record) {
  if (slot >= static_cast<int64_t>(slots_.size())) slots_.resize(static_cast<size_t>(slot) + 1);
  Slot& entry = slot_at(slot);
  entry.dirty = true;
  sequence_ = std::max(sequence_, record.sequence);
  auto [found, fresh] = slots_of_.try_emplace(record.key, slot);
  if (!fresh) {
    Slot& other = slot_at(found->second);
    if (other.record.sequence >= record.sequence) return;
    other.state = State::free;
    other.record = {};
    found->second = slot;
  }
  entry.state = State::stored;
  entry.record = std::move(record);
}

void StoreIndex::restored() {
  for (int64_t slot = 0; slot < static_cast<int64_t>(slots_.size()); ++slot) {
    Slot& entry = slot_at(slot);
    if (entry.state == State::stored) order_.push_back(slot);
    else {
      // What is on disk there is nothing that counts, or was torn: zero it before it is used.
      entry.dirty = true;
      free_.push_back(slot);
    }
  }
  order_.sort([&](int64_t a, int64_t b) { return record(a).sequence < record(b).sequence; });
  for (auto at = order_.begin(); at != order_.end(); ++at) slot_at(*at).place = at;
  stored_ = static_cast<int64_t>(order_.size());
}

int64_t StoreIndex::find(const ChainLink& link) const {
  const auto found = slots_of_.find(link.key);
  if (found == slots_of_.end()) return -1;
  const Slot& slot = slots_[static_cast<size_t>(found->second)];
  const bool same = slot.state == State::stored && slot.record.parent == link.parent && std::ranges::equal(slot.record.tokens, link.tokens);
  return same ? found->second : -1;
}

void StoreIndex::use(int64_t slot) {
  if (slot_at(slot).state == State::stored) order_.splice(order_.end(), order_, slot_at(slot).place);
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
  } else if (static_cast<int64_t>(slots_.size()) < capacity_) {
    slot = static_cast<int64_t>(slots_.size());
    slots_.emplace_back();
  } else {
    const auto oldest = std::ranges::find_if(order_, [&](int64_t one) { return slot_at(one).pins == 0; });
    if (oldest == order_.end()) return -1;
    slot = *oldest;
    slots_of_.erase(slot_at(slot).record.key);
    order_.erase(oldest);
    --stored_;
  }
  slot_at(slot).state = State::writing;
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
  entry.place = order_.insert(order_.end(), slot);
  ++stored_;
}

void StoreIndex::drop(int64_t slot) {
  Slot& entry = slot_at(slot);
  if (entry.state == State::free) return;
  if (entry.state == State::stored) {
    order_.erase(entry.place);
    --stored_;
  }
  slots_of_.erase(entry.record.key);
  entry.state = State::free;
  entry.record = {};
  if (entry.pins == 0) free_.push_back(slot);
}

}  // namespace millrace
