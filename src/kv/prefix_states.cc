#include "kv/prefix_states.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>

namespace millrace {

int64_t PrefixStates::index_of(Node node) const {
  return node >= 0 && node < std::ssize(indices_) ? indices_[static_cast<size_t>(node)] : -1;
}

StateId PrefixStates::at(Node node) const {
  const int64_t index = index_of(node);
  return index < 0 ? kNone : copies_[static_cast<size_t>(index)].slot;
}

int64_t PrefixStates::usable(std::span<const Node> path) const {
  int64_t length = std::ssize(path);
  while (length > 0 && index_of(path[static_cast<size_t>(length - 1)]) < 0) --length;
  return length;
}

size_t PrefixStates::choose_victim() {
  uses_.clear();
  for (Copy& copy : copies_) {
    const int64_t above = index_of(copy.above);
    copy.use.saved = copy.use.tokens - (above < 0 ? 0 : copies_[static_cast<size_t>(above)].use.tokens);
    copy.use.paths = tree_.children(copy.node);
    uses_.push_back(copy.use);
  }
  return evictor_->victim(uses_);
}

StateId PrefixStates::take_slot() {
  if (held() >= pool_.copies()) {
    if (size() == 0) return kNone;
    evict(choose_victim());
  }
  const auto slot = pool_.allocate();
  return slot.ok() ? *slot : kNone;
}

StateId PrefixStates::lend() {
  const StateId slot = take_slot();
  if (slot != kNone) ++lent_;
  return slot;
}

StateId PrefixStates::lend(std::span<const float> state) {
  const StateId slot = lend();
  if (slot != kNone) std::ranges::copy(state, slot_values(pool_, slot).begin());
  return slot;
}

void PrefixStates::take_back(StateId slot) {
  pool_.release(slot);
  --lent_;
}

bool PrefixStates::use_again(Node node) {
  const int64_t index = index_of(node);
  if (index >= 0) copies_[static_cast<size_t>(index)].use.last_use = ++clock_;
  return index >= 0;
}

bool PrefixStates::store(std::span<const Node> path, int64_t tokens, std::span<const float> state) {
  assert(needed() && !path.empty());
  if (use_again(path.back())) return true;
  const StateId slot = take_slot();
  if (slot == kNone) return false;
  std::ranges::copy(state, slot_values(pool_, slot).begin());
  add(path, tokens, slot);
  return true;
}

void PrefixStates::adopt(std::span<const Node> path, int64_t tokens, StateId slot) {
  assert(needed() && !path.empty());
  if (use_again(path.back())) return take_back(slot);
  --lent_;
  add(path, tokens, slot);
}

void PrefixStates::add(std::span<const Node> path, int64_t tokens, StateId slot) {
  const Node node = path.back();
  Copy copy{node, slot, PrefixTree::kNone, {.tokens = tokens, .last_use = ++clock_}};
  const int64_t above = usable(path.first(path.size() - 1));
  if (above > 0) copy.above = path[static_cast<size_t>(above - 1)];
  put_above(copy);
  if (std::ssize(indices_) <= node) indices_.resize(static_cast<size_t>(node) + 1, -1);
  indices_[static_cast<size_t>(node)] = static_cast<int32_t>(copies_.size());
  copies_.push_back(copy);
  ++stats_.stored;
}

// Makes `copy` the copy above every copy below it. Only copies with the same `above` as `copy` can be below it. Each
// walk towards the root ends at a node that an earlier walk visited, so no node is visited twice.
void PrefixStates::put_above(const Copy& copy) {
  if (tree_.children(copy.node) == 0) return;
  visits_.resize(static_cast<size_t>(tree_.slots()));
  ++round_;
  for (Copy& other : copies_) {
    if (other.above != copy.above || other.use.tokens <= copy.use.tokens) continue;
    walk_.clear();
    Node node = tree_.parent(other.node);
    const auto visited = [&] { return std::abs(visits_[static_cast<size_t>(node)]) == round_; };
    for (; node != copy.node && node != copy.above && !visited(); node = tree_.parent(node)) walk_.push_back(node);
    const bool behind = node == copy.node || (node != copy.above && visits_[static_cast<size_t>(node)] > 0);
    for (const Node one : walk_) visits_[static_cast<size_t>(one)] = behind ? round_ : -round_;
    stats_.walked += std::ssize(walk_);
    if (behind) other.above = copy.node;
  }
}

void PrefixStates::hit(Node node) {
  const int64_t index = index_of(node);
  if (index < 0) return;
  StateUse& use = copies_[static_cast<size_t>(index)].use;
  ++use.hits;
  use.last_use = ++clock_;
  ++stats_.hits;
}

void PrefixStates::replace(Node node) {
  const int64_t index = index_of(node);
  if (index < 0 || copies_[static_cast<size_t>(index)].use.hits > 0 || tree_.children(node) > 1) return;
  drop(static_cast<size_t>(index));
  ++stats_.replaced;
}

void PrefixStates::erase(Node node) {
  const int64_t index = index_of(node);
  if (index >= 0) evict(static_cast<size_t>(index));
}

void PrefixStates::evict(size_t index) {
  if (leaving_) leaving_(copies_[index].node, copies_[index].slot);
  drop(index);
  ++stats_.evicted;
}

// The last copy takes the place of the dropped one.
void PrefixStates::drop(size_t index) {
  const Copy copy = copies_[index];
  pool_.release(copy.slot);
  for (Copy& other : copies_)
    if (other.above == copy.node) other.above = copy.above;
  indices_[static_cast<size_t>(copies_.back().node)] = static_cast<int32_t>(index);
  indices_[static_cast<size_t>(copy.node)] = -1;
  copies_[index] = copies_.back();
  copies_.pop_back();
}

void PrefixStates::add_slots(std::vector<int32_t>& holders) const {
  for (const Copy& copy : copies_) ++holders[static_cast<size_t>(copy.slot)];
}

}  // namespace millrace
