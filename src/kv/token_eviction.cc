#include "kv/token_eviction.h"

#include <algorithm>

namespace millrace {

TokenEviction::TokenEviction(std::shared_ptr<const EvictionRule> rule, int64_t prompt, int64_t total, int64_t kv_heads,
                             int64_t layers)
    : rule_(std::move(rule)),
      prompt_(prompt),
      total_(total),
      heads_(rule_->choosers(kv_heads)),
      layers_(static_cast<size_t>(rule_->by_layer() ? layers : 1), KeptTokens(heads_)) {}

void TokenEviction::reserve(int64_t drafted) {
  for (int64_t i = 0; i < layers(); ++i) tokens(i).reserve(most_stored(i), drafted, rule_->evictor->needs_mass());
  if (rule_->evictor->cascades()) cascade_.reserve(most_stored());
}

int64_t TokenEviction::next() const {
  return decisions_ == 0 ? rule_->first_decision(prompt_, layers()) : last_ + rule_->slack;
}

int64_t TokenEviction::first_observed() const {
  return std::max<int64_t>(0, next() - std::min(next(), rule_->evictor->mass_rule().queries));
}

int64_t TokenEviction::most_stored(int64_t layer) const {
  return layer_demand(rule_.get(), decisions_ == 0 ? prompt_ : 0, total_, layer, layers());
}

int64_t TokenEviction::mean_evicted() const {
  int64_t sum = layers() - 1;
  for (const KeptTokens& layer : layers_) sum += layer.evicted();
  return sum / layers();
}

void TokenEviction::keep_drafted() {
  if (!rule_->evictor->needs_mass()) return;
  for (KeptTokens& layer : layers_) layer.keep_drafted();
}

void TokenEviction::start_again() {
  decisions_ = last_ = 0;
  for (KeptTokens& layer : layers_) layer.clear();
  cascade_.clear();
}

std::span<const int32_t> TokenEviction::decide() {
  const int64_t computed = next();
  for (KeptTokens& layer : layers_) layer.see(computed);
  if (rule_->evictor->cascades())
    cascade_.decide(*rule_->evictor, layers_);
  else
    for (int64_t i = 0; i < layers(); ++i) tokens(i).keep(*rule_->evictor, rule_->evictor->budget_of(i, layers()));
  last_ = computed;
  ++decisions_;
  return tokens().kept();
}

int64_t eviction_bytes(const EvictionRule& rule, int64_t stored, int64_t drafted, int64_t kv_heads, int64_t layers) {
  const bool mass = rule.evictor->needs_mass();
  const int64_t heads = rule.choosers(kv_heads), own = heads > 1 ? 4 + 8 * mass : 0;
  const int64_t each = 4 + own + heads * (8 + (mass ? 8 * (1 + drafted) : 0));
  if (!rule.by_layer()) return stored * each;
  return stored * layers * each + (rule.evictor->cascades() ? 2 * stored * (2 * 8 + 5 * 4) : 0);  // of the first layer
}

}  // namespace millrace
