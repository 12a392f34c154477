#include "kv/token_eviction.h"

#include <algorithm>
#include <cassert>

namespace millrace {

TokenEviction::TokenEviction(std::shared_ptr<const EvictionRule> rule, int64_t prompt, int64_t total)
    : rule_(std::move(rule)), prompt_(prompt), total_(total) {}

void TokenEviction::reserve(int64_t drafted) {
  const auto most = static_cast<size_t>(most_stored());
  positions_.reserve(most);
  kept_.reserve(most);
  dropped_.reserve(most);
  if (!rule_->evictor->needs_mass()) return;
  mass_.reserve(most);
  draft_mass_.reserve(most * static_cast<size_t>(drafted));
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
  mass_.resize(static_cast<size_t>(slots), 0);
  return mass_;
}

std::span<int64_t> TokenEviction::draft_mass(int64_t drafted, int64_t slots) {
  const auto size = static_cast<size_t>(drafted * slots);
  if (draft_mass_.size() < size) draft_mass_.resize(size);
  std::fill_n(draft_mass_.begin(), size, int64_t{0});
  draft_slots_ = slots;
  kept_drafts_ = 0;
  return std::span(draft_mass_).first(size);
}

// A drafted token sees the slots up to its own, which follows those that mass_ has.
void TokenEviction::keep_drafted() {
  if (!rule_->evictor->needs_mass()) return;
  const int64_t* row = draft_mass_.data() + kept_drafts_++ * draft_slots_;
  mass_.push_back(0);
  for (size_t i = 0; i < mass_.size(); ++i) mass_[i] += row[i];
}

void TokenEviction::start_again() {
  evicted_ = decisions_ = 0;
  positions_.clear();
  mass_.clear();
}

std::span<const int32_t> TokenEviction::decide() {
  const int64_t stored = next() - evicted_;
  for (auto slot = static_cast<int64_t>(positions_.size()); slot < stored; ++slot)
    positions_.push_back(static_cast<int32_t>(slot + evicted_));
  assert(!rule_->evictor->needs_mass() || std::ssize(mass_) == stored);
  const int64_t excess = stored - rule_->evictor->budget();
  dropped_.clear();
  rule_->evictor->drop({positions_, mass_}, excess, dropped_);
  assert(std::ssize(dropped_) == excess);
  kept_.clear();
  auto gone = dropped_.begin();
  for (int32_t slot = 0; slot < stored; ++slot) {
    if (gone != dropped_.end() && *gone == slot) {
      ++gone;
      continue;
    }
    const auto from = static_cast<size_t>(slot), to = kept_.size();
    positions_[to] = positions_[from];
    if (!mass_.empty()) mass_[to] = mass_[from];
    kept_.push_back(slot);
  }
  positions_.resize(kept_.size());
  if (!mass_.empty()) mass_.resize(kept_.size());
  if (rule_->evictor->mass_rule().queries != MassRule::kAll) std::ranges::fill(mass_, int64_t{0});
  evicted_ += excess;
  ++decisions_;
  return kept_;
}

int64_t eviction_bytes(const EvictionRule& rule, int64_t stored, int64_t drafted) {
  return stored * (12 + (rule.evictor->needs_mass() ? 8 * (1 + drafted) : 0));
}

}  // namespace millrace
