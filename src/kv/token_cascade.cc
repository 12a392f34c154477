#include "kv/token_cascade.h"

#include <algorithm>

namespace millrace {
namespace {

// Where `position` is in an ascending list, from index `at` on; it must be there.
size_t find_from(std::span<const int32_t> list, size_t at, int32_t position) {
  while (list[at] != position) ++at;
  return at;
}

}  // namespace

void TokenCascade::reserve(int64_t stored) {
  const auto most = static_cast<size_t>(stored);
  worth_.reserve(most);
  candidate_worth_.reserve(most);
  for (auto* list : {&positions_, &left_, &slots_, &candidates_, &dropped_}) list->reserve(most);
}

// A layer's tokens are some of the first one's.
void TokenCascade::add_sums(KeptTokens& layer) {
  const auto mass = layer.mass();
  const auto positions = layer.positions();
  for (size_t i = 0, at = 0; i < mass.size(); ++i) {
    at = find_from(positions_, at, positions[i]);
    worth_[at] += mass[i];
  }
}

void TokenCascade::keep(const TokenEvictor& evictor, int64_t budget, KeptTokens& layer) {
  slots_.clear();
  candidates_.clear();
  candidate_worth_.clear();
  const auto positions = layer.positions();
  size_t at = 0, before = 0;
  for (size_t slot = 0; slot < positions.size(); ++slot) {
    while (before < left_.size() && left_[before] < positions[slot]) ++before;
    if (before == left_.size() || left_[before] != positions[slot]) continue;
    at = find_from(positions_, at, positions[slot]);
    slots_.push_back(static_cast<int32_t>(slot));
    candidates_.push_back(positions[slot]);
    candidate_worth_.push_back(worth_[at]);
  }
  dropped_.clear();
  const int64_t excess = std::ssize(candidates_) - budget;
  if (excess > 0) evictor.drop({candidates_, candidate_worth_}, excess, dropped_);
  size_t to = 0;
  auto gone = dropped_.begin();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (gone != dropped_.end() && static_cast<size_t>(*gone) == i)
      ++gone;
    else
      slots_[to++] = slots_[i];
  }
  slots_.resize(to);
  layer.keep_slots(slots_);
  left_.assign(layer.positions().begin(), layer.positions().end());
}

void TokenCascade::decide(const TokenEvictor& evictor, std::span<KeptTokens> layers) {
  KeptTokens& first = layers.front();
  positions_.assign(first.positions().begin(), first.positions().end());
  worth_.resize(positions_.size(), 0);
  for (KeptTokens& layer : layers) add_sums(layer);
  left_ = positions_;
  for (size_t i = 0; i < layers.size(); ++i)
    keep(evictor, evictor.budget_of(static_cast<int64_t>(i), std::ssize(layers)), layers[i]);
  const auto kept = first.kept();
  for (size_t i = 0; i < kept.size(); ++i) worth_[i] = worth_[static_cast<size_t>(kept[i])];
  worth_.resize(kept.size());
}

}  // namespace millrace
