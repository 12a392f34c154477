#include "kv/token_eviction.h"

#include <algorithm>

namespace millrace {

TokenEviction::TokenEviction(std::shared_ptr<const EvictionRule> rule, int64_t prompt, int64_t total, int64_t kv_heads,
                             int64_t layers)
    : rule_(std::move(rule)),
      prompt_(prompt),
      total_(total),
      heads_(rule_->choosers(kv_heads)),
      layers_(static_cast<size_t>(rule_->by_layer() ? layers : 1), KeptTokens(heads_)),
      gated_(rule_->evictor->gated() ? layers_.size() : 0) {
  for (KeptTokens& layer : layers_) layer.observe_from(rule_->joined);
  if (rule_->evictor->prunes_heads()) kv_heads_.emplace(this->layers(), kv_heads / this->layers());
}

void TokenEviction::reserve(int64_t drafted, int64_t gate_dims) {
  for (int64_t i = 0; i < layers(); ++i) tokens(i).reserve(most_stored(i), drafted, rule_->evictor->needs_sums());
  if (rule_->evictor->cascades()) cascade_.reserve(most_stored());
  for (size_t i = 0; i < gated_.size(); ++i)
    gated_[i].reserve(most_stored(static_cast<int64_t>(i)), rule_->evictor->gate(), gate_dims);
  if (kv_heads_) kv_heads_->reserve(drafted);
}

int64_t TokenEviction::next() const {
  return decisions_ == 0 ? rule_->first_decision(prompt_, layers()) : last_ + rule_->slack;
}

int64_t TokenEviction::first_observed() const {
  return std::max(rule_->joined, next() - std::min(next(), rule_->evictor->mass_rule().queries));
}

bool TokenEviction::judges_documents(int64_t first, int64_t count) const {
  if (rule_->joined == 0 || !rule_->evictor->judges_keys()) return false;
  const int64_t at = std::min(rule_->joined, prompt_ - 1);
  return first <= at && at < first + count;
}

int64_t TokenEviction::most_stored(int64_t layer) const {
  const int64_t most = layer_demand(rule_.get(), decisions_ == 0 ? prompt_ : 0, total_, layer, layers());
  return gated_.empty() ? most : std::min(most, total_ - evicted(layer));  // whatever comes may stay
}

int64_t TokenEviction::mean_evicted() const {
  int64_t sum = layers() - 1;
  for (const KeptTokens& layer : layers_) sum += layer.evicted();
  return sum / layers();
}

void TokenEviction::keep_drafted() {
  if (kv_heads_) kv_heads_->keep_drafted();
  if (!rule_->evictor->needs_sums()) return;
  for (KeptTokens& layer : layers_) layer.keep_drafted();
}

void TokenEviction::start_again() {
  decisions_ = last_ = 0;
  for (KeptTokens& layer : layers_) layer.clear();
  for (GatedTokens& layer : gated_) layer.clear();
  cascade_.clear();
  if (kv_heads_) kv_heads_->clear();
}

std::span<const int32_t> TokenEviction::decide() {
  const int64_t computed = next();
  for (KeptTokens& layer : layers_) layer.see(computed);
  const TokenEvictor& evictor = *rule_->evictor;
  if (evictor.gated())
    drop_ended();
  else if (evictor.cascades())
    cascade_.decide(evictor, layers_);
  else
    for (int64_t i = 0; i < layers(); ++i) tokens(i).keep(evictor, evictor.budget_of(i, layers()));
  if (kv_heads_) kv_heads_->decide(evictor);
  last_ = computed;
  ++decisions_;
  return tokens().kept();
}

void TokenEviction::drop_ended() {
  for (int64_t i = 0; i < layers(); ++i) {
    tokens(i).keep_slots(gated(i).staying());
    gated(i).keep_staying();
  }
}

int64_t first_moved(std::span<const int32_t> kept, int64_t heads) {
  const int64_t each = std::ssize(kept) / heads;
  int64_t first = each;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < first; ++i)
      if (kept[static_cast<size_t>(head * each + i)] != i) first = i;
  return first;
}

int64_t eviction_bytes(const EvictionRule& rule, int64_t stored, int64_t drafted, int64_t kv_heads, int64_t layers,
                       int64_t gate_dims) {
  const TokenGate gate = rule.evictor->gate();
  const bool sums = rule.evictor->needs_sums();
  const int64_t heads = rule.choosers(kv_heads), own = heads > 1 ? 4 + 8 * sums : 0;
  // Of gates: ends and slots, and a row or a weight.
  const int64_t gated = gate == TokenGate::none ? 0 : 8 + 4 * (gate == TokenGate::pairs ? gate_dims : 1);
  const int64_t each = 4 + own + gated + heads * (8 + (sums ? 8 * (1 + drafted) : 0));
  if (!rule.by_layer()) return stored * each;
  return stored * layers * each + (rule.evictor->cascades() ? 2 * stored * (2 * 8 + 5 * 4) : 0) +  // of the first layer
         (rule.evictor->prunes_heads() ? head_cascade_bytes(layers, kv_heads / layers, drafted) : 0);
}

}  // namespace millrace
