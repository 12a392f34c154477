// EvictionObserver: collects the attention that the stored tokens of a ModelRunner's streams receive in its next pass,
// for streams with an evictor that needs it. Without such streams it is no hook of the pass. Not thread-safe.
//
//   runner.start(); observer.start();  runner.begin(...); runner.add(...)...; observer.add(eviction)  runner.forward()
#pragma once

#include <algorithm>
#include <utility>

#include "attention/token_mass.h"
#include "kv/token_eviction.h"
#include "models/model_runner.h"

namespace millrace {

class EvictionObserver final : public ForwardObserver {
 public:
  // For drafts of up to `most_drafted` tokens.
  explicit EvictionObserver(ModelRunner& runner, int64_t most_drafted = 0) : runner_(runner) {
    mass_.most_drafted = most_drafted;
  }
  ~EvictionObserver() override { runner_.hooks().remove(*this); }
  EvictionObserver(const EvictionObserver&) = delete;
  EvictionObserver& operator=(const EvictionObserver&) = delete;

  void start() {
    mass_.spans.clear();
    observed_.clear();
  }
  // For the stream whose tokens were added to the runner last; the last `drafted` of them are drafted tokens. The sums
  // are the evictor's own, and grow during the pass.
  void add(TokenEviction& eviction, int64_t drafted = 0) {
    if (!eviction.rule().evictor->needs_mass()) return;
    const auto& spans = runner_.batch().spans;
    const int64_t count = spans.back().count, first = spans.back().first_slot + eviction.evicted();  // in the text
    for (int64_t layer = 0; layer < eviction.layers(); ++layer) {
      const int64_t slots = first + count - eviction.evicted(layer);
      eviction.tokens(layer).mass(slots - drafted);
      eviction.tokens(layer).draft_mass(drafted, slots);
    }
    const int64_t skipped = std::max<int64_t>(0, eviction.first_observed() - first);
    if (skipped >= count) return;
    observed_.push_back(&eviction);
    mass_.spans.push_back({.span = std::ssize(spans) - 1,
                           .drafted = drafted,
                           .skipped = skipped,
                           .shares = eviction.rule().evictor->mass_rule().shares,
                           .heads = eviction.heads(),
                           .whole_layers = eviction.rule().scope == EvictionScope::layer,
                           .mass = eviction.tokens().mass(),
                           .draft_mass = eviction.tokens().draft_mass()});
    if (!std::exchange(added_, true)) runner_.hooks().add(*this);
  }
  // Beside layers with a window, tokens are dropped from the first group of layers alone, so that only these count.
  void queries(const AttentionInput& in) override {
    if (mass_.spans.empty() || (in.layer.group != 0 && !in.kv.by_layer())) return;
    for (size_t i = 0; i < observed_.size(); ++i) {
      if (observed_[i]->layers() == 1) continue;
      mass_.spans[i].mass = observed_[i]->tokens(in.layer.group).mass();
      mass_.spans[i].draft_mass = observed_[i]->tokens(in.layer.group).draft_mass();
    }
    observe_token_mass(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, mass_);
  }

 private:
  ModelRunner& runner_;
  TokenMass mass_;
  std::vector<TokenEviction*> observed_;  // of each of its spans
  bool added_ = false;                    // to the hooks
};

}  // namespace millrace
