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

  void start() { mass_.spans.clear(); }
  // For the stream whose tokens were added to the runner last; the last `drafted` of them are drafted tokens. The sums
  // are the evictor's own, and grow during the pass.
  void add(TokenEviction& eviction, int64_t drafted = 0) {
    if (!eviction.rule().evictor->needs_mass()) return;
    const auto& spans = runner_.batch().spans;
    const int64_t first = spans.back().first_slot, count = spans.back().count, slots = first + count;
    const auto own = eviction.mass(slots - drafted), drafts = eviction.draft_mass(drafted, slots);
    const int64_t skipped = std::max<int64_t>(0, eviction.first_observed() - eviction.evicted() - first);
    if (skipped >= count) return;
    mass_.spans.push_back({.span = std::ssize(spans) - 1,
                           .drafted = drafted,
                           .skipped = skipped,
                           .shares = eviction.rule().evictor->mass_rule().shares,
                           .heads = eviction.heads(),
                           .whole_layers = eviction.rule().scope == EvictionScope::layer,
                           .mass = own,
                           .draft_mass = drafts});
    if (!std::exchange(added_, true)) runner_.hooks().add(*this);
  }
  // Tokens are dropped from the first group of layers alone, so that only these count.
  void queries(const AttentionInput& in) override {
    if (mass_.spans.empty() || in.layer.group != 0) return;
    observe_token_mass(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, mass_);
  }

 private:
  ModelRunner& runner_;
  TokenMass mass_;
  bool added_ = false;  // to the hooks
};

}  // namespace millrace
