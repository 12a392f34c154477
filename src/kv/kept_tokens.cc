#include "kv/kept_tokens.h"

#include <algorithm>
#include <cassert>

namespace millrace {

void KeptTokens::reserve(int64_t stored, int64_t drafted, bool needs_sums) {
  const auto most = static_cast<size_t>(stored), all = most * static_cast<size_t>(heads_);
  positions_.reserve(all);
  kept_.reserve(all);
  dropped_.reserve(most);
  if (heads_ > 1) own_positions_.reserve(most);
  if (!needs_sums) return;
  mass_.reserve(all);
  draft_mass_.reserve(all * static_cast<size_t>(drafted));
  if (heads_ > 1) own_mass_.reserve(most);
}

std::span<int64_t> KeptTokens::mass(int64_t slots) {
  mass_.resize(static_cast<size_t>(slots * heads_), 0);
  return mass_;
}

std::span<int64_t> KeptTokens::draft_mass(int64_t drafted, int64_t slots) {
  const auto size = static_cast<size_t>(drafted * slots * heads_);
  if (draft_mass_.size() < size) draft_mass_.resize(size);
  std::fill_n(draft_mass_.begin(), size, int64_t{0});
  draft_slots_ = slots;
  draft_size_ = static_cast<int64_t>(size);
  kept_drafts_ = 0;
  return draft_mass();
}

// A drafted token sees the slots up to its own, which follows those that mass_ has.
void KeptTokens::keep_drafted() {
  const int64_t* row = draft_mass_.data() + kept_drafts_++ * draft_slots_ * heads_;
  mass_.resize(mass_.size() + static_cast<size_t>(heads_), 0);
  for (size_t i = 0; i < mass_.size(); ++i) mass_[i] += row[i];
}

void KeptTokens::clear() {
  evicted_ = 0;
  positions_.clear();
  mass_.clear();
}

int64_t KeptTokens::see(int64_t computed) {
  const int64_t stored = computed - evicted_;
  for (int64_t slot = std::ssize(positions_) / heads_; slot < stored; ++slot)
    positions_.insert(positions_.end(), static_cast<size_t>(heads_), static_cast<int32_t>(slot + evicted_));
  return stored;
}

std::span<const int32_t> KeptTokens::keep(const TokenEvictor& evictor, int64_t budget) {
  const int64_t stored = std::ssize(positions_) / heads_;
  assert(!evictor.needs_sums() || mass_.size() == positions_.size());
  kept_.clear();
  for (int64_t head = 0; head < heads_; ++head) choose(evictor, head, stored, std::max<int64_t>(0, stored - budget));
  const int64_t left = std::min(stored, budget);
  positions_.resize(static_cast<size_t>(left * heads_));
  if (!mass_.empty()) mass_.resize(positions_.size());
  if (!evictor.judges_keys() && evictor.mass_rule().queries != MassRule::kAll) std::ranges::fill(mass_, int64_t{0});
  evicted_ += stored - left;
  return kept_;
}

std::span<const int32_t> KeptTokens::keep_slots(std::span<const int32_t> slots) {
  assert(heads_ == 1);
  evicted_ += std::ssize(positions_) - std::ssize(slots);
  for (size_t i = 0; i < slots.size(); ++i) positions_[i] = positions_[static_cast<size_t>(slots[i])];
  positions_.resize(slots.size());
  if (!mass_.empty()) mass_.assign(slots.size(), 0);
  kept_.assign(slots.begin(), slots.end());
  return kept_;
}

// Appends what one head keeps to kept_, and moves its positions and sums to the first slots.
void KeptTokens::choose(const TokenEvictor& evictor, int64_t head, int64_t stored, int64_t excess) {
  const auto at = [&](int64_t slot) { return static_cast<size_t>(slot * heads_ + head); };
  const auto shown = [&](std::span<const int32_t> positions, std::span<const int64_t> sums) {
    return evictor.judges_keys() ? StoredTokens{positions, {}, first_query_, sums}
                                 : StoredTokens{positions, sums, first_query_};
  };
  StoredTokens seen = shown(positions_, mass_);
  if (heads_ > 1) {
    own_positions_.clear();
    own_mass_.clear();
    for (int64_t slot = 0; slot < stored; ++slot) own_positions_.push_back(positions_[at(slot)]);
    for (int64_t slot = 0; slot < stored && !mass_.empty(); ++slot) own_mass_.push_back(mass_[at(slot)]);
    seen = shown(own_positions_, own_mass_);
  }
  dropped_.clear();
  if (excess > 0) evictor.drop(seen, excess, dropped_);
  assert(std::ssize(dropped_) == excess);
  auto gone = dropped_.begin();
  int64_t to = 0;
  for (int32_t slot = 0; slot < stored; ++slot) {
    if (gone != dropped_.end() && *gone == slot) {
      ++gone;
      continue;
    }
    positions_[at(to)] = positions_[at(slot)];
    if (!mass_.empty()) mass_[at(to)] = mass_[at(slot)];
    kept_.push_back(slot);
    ++to;
  }
}

}  // namespace millrace
