#include "kv/token_eviction.h"

#include <algorithm>
#include <cassert>

namespace millrace {

TokenEviction::TokenEviction(std::shared_ptr<const EvictionRule> rule, int64_t prompt, int64_t total, int64_t kv_heads)
    : rule_(std::move(rule)), prompt_(prompt), total_(total), heads_(rule_->choosers(kv_heads)) {}

void TokenEviction::reserve(int64_t drafted) {
  const auto most = static_cast<size_t>(most_stored()), all = most * static_cast<size_t>(heads_);
  positions_.reserve(all);
  kept_.reserve(all);
  dropped_.reserve(most);
  if (heads_ > 1) own_positions_.reserve(most);
  if (!rule_->evictor->needs_mass()) return;
  mass_.reserve(all);
  draft_mass_.reserve(all * static_cast<size_t>(drafted));
  if (heads_ > 1) own_mass_.reserve(most);
}

int64_t TokenEviction::next() const {
  const int64_t full = evicted_ + rule_->most_stored();
  return rule_->whole_prompt ? std::max(full, prompt_) : full;
}

int64_t TokenEviction::first_observed() const {
  return std::max<int64_t>(0, next() - std::min(next(), rule_->evictor->mass_rule().queries));
}

int64_t TokenEviction::most_stored() const { return kv_demand(rule_.get(), decisions_ == 0 ? prompt_ : 0, total_); }

std::span<int64_t> TokenEviction::mass(int64_t slots) {
  mass_.resize(static_cast<size_t>(slots * heads_), 0);
  return mass_;
}

std::span<int64_t> TokenEviction::draft_mass(int64_t drafted, int64_t slots) {
  const auto size = static_cast<size_t>(drafted * slots * heads_);
  if (draft_mass_.size() < size) draft_mass_.resize(size);
  std::fill_n(draft_mass_.begin(), size, int64_t{0});
  draft_slots_ = slots;
  kept_drafts_ = 0;
  return std::span(draft_mass_).first(size);
}

// A drafted token sees the slots up to its own, which follows those that mass_ has.
void TokenEviction::keep_drafted() {
  if (!rule_->evictor->needs_mass()) return;
  const int64_t* row = draft_mass_.data() + kept_drafts_++ * draft_slots_ * heads_;
  mass_.resize(mass_.size() + static_cast<size_t>(heads_), 0);
  for (size_t i = 0; i < mass_.size(); ++i) mass_[i] += row[i];
}

void TokenEviction::start_again() {
  evicted_ = decisions_ = 0;
  positions_.clear();
  mass_.clear();
}

std::span<const int32_t> TokenEviction::decide() {
  const int64_t stored = next() - evicted_, budget = rule_->evictor->budget();
  for (int64_t slot = std::ssize(positions_) / heads_; slot < stored; ++slot)
    positions_.insert(positions_.end(), static_cast<size_t>(heads_), static_cast<int32_t>(slot + evicted_));
  assert(!rule_->evictor->needs_mass() || std::ssize(mass_) == stored * heads_);
  kept_.clear();
  for (int64_t head = 0; head < heads_; ++head) choose(head, stored);
  positions_.resize(static_cast<size_t>(budget * heads_));
  if (!mass_.empty()) mass_.resize(positions_.size());
  if (rule_->evictor->mass_rule().queries != MassRule::kAll) std::ranges::fill(mass_, int64_t{0});
  evicted_ += stored - budget;
  ++decisions_;
  return kept_;
}

// Appends what one head keeps to kept_, and moves its positions and sums to the first slots.
void TokenEviction::choose(int64_t head, int64_t stored) {
  const auto at = [&](int64_t slot) { return static_cast<size_t>(slot * heads_ + head); };
  StoredTokens seen{positions_, mass_};
  if (heads_ > 1) {
    own_positions_.clear();
    own_mass_.clear();
    for (int64_t slot = 0; slot < stored; ++slot) own_positions_.push_back(positions_[at(slot)]);
    for (int64_t slot = 0; slot < stored && !mass_.empty(); ++slot) own_mass_.push_back(mass_[at(slot)]);
    seen = {own_positions_, own_mass_};
  }
  dropped_.clear();
  rule_->evictor->drop(seen, stored - rule_->evictor->budget(), dropped_);
  assert(std::ssize(dropped_) == stored - rule_->evictor->budget());
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

int64_t eviction_bytes(const EvictionRule& rule, int64_t stored, int64_t drafted, int64_t kv_heads) {
  const bool mass = rule.evictor->needs_mass();
  const int64_t heads = rule.choosers(kv_heads), own = heads > 1 ? 4 + 8 * mass : 0;
  return stored * (4 + own + heads * (8 + (mass ? 8 * (1 + drafted) : 0)));
}

}  // namespace millrace
