// EvictionObserver: collects the attention that the stored tokens of a ModelRunner's streams receive in its next pass,
// or the worth of their keys, for streams with an evictor that needs it. For streams whose evictor uses gates, it lets
// the gates choose. Without such streams it is no hook of the pass. Not thread-safe.
//
//   runner.start(); observer.start();  runner.begin(...); runner.add(...)...; observer.add(eviction)  runner.forward()
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/key_worth.h"
#include "attention/token_mass.h"
#include "kv/token_eviction.h"
#include "models/eviction_gates.h"
#include "models/model_runner.h"

namespace millrace {

class EvictionObserver final : public ForwardObserver {
 public:
  // For drafts of up to `most_drafted` tokens.
  explicit EvictionObserver(ModelRunner& runner, int64_t most_drafted = 0) : runner_(runner), gates_(runner) {
    mass_.most_drafted = most_drafted;
  }
  ~EvictionObserver() override { runner_.hooks().remove(*this); }
  EvictionObserver(const EvictionObserver&) = delete;
  EvictionObserver& operator=(const EvictionObserver&) = delete;

  void start() {
    mass_.spans.clear();
    observed_.clear();
    judged_.clear();
    pruned_.clear();
    gates_.start();
  }
  // For the stream whose tokens were added to the runner last; the last `drafted` of them are drafted tokens. The sums
  // are the evictor's own, and grow during the pass.
  void add(TokenEviction& eviction, int64_t drafted = 0) {
    const TokenEvictor& evictor = *eviction.rule().evictor;
    if (evictor.gated() || evictor.prunes_heads()) gates_.add(eviction);
    if (HeadCascade* heads = eviction.kv_heads()) {
      heads->draft_worth(drafted);
      pruned_.push_back({runner_.batch().spans.back(), drafted, heads});
    }
    if (!evictor.needs_sums()) return;
    const auto& spans = runner_.batch().spans;
    const int64_t count = spans.back().count, first = spans.back().first_slot + eviction.evicted();  // in the text
    for (int64_t layer = 0; layer < eviction.layers(); ++layer) {
      const int64_t slots = first + count - eviction.evicted(layer);
      eviction.tokens(layer).mass(slots - drafted);
      eviction.tokens(layer).draft_mass(drafted, slots);
    }
    if (evictor.judges_keys()) return judge(eviction, first, drafted);
    const int64_t skipped = std::max<int64_t>(0, eviction.first_observed() - first);
    if (skipped >= count) return;
    observed_.push_back(&eviction);
    mass_.spans.push_back({.span = std::ssize(spans) - 1,
                           .drafted = drafted,
                           .skipped = skipped,
                           .shares = evictor.mass_rule().shares,
                           .heads = eviction.heads(),
                           .whole_layers = eviction.rule().scope == EvictionScope::layer,
                           .mass = eviction.tokens().mass(),
                           .draft_mass = eviction.tokens().draft_mass()});
    observe();
  }
  // In models that also have layers with a window, tokens are dropped from the first group of layers alone, so only
  // that group counts.
  void queries(const AttentionInput& in) override {
    if (in.layer.group != 0 && !in.kv.divided()) return;
    for (Judged& one : judged_) add_worth(in, one);
    if (mass_.spans.empty()) return;
    if (const int64_t tables = in.kv.layout().tables_per_layer(); tables > 1) return queries_apart(in, tables);
    for (size_t i = 0; i < observed_.size(); ++i) {
      if (const HeadCascade* heads = observed_[i]->kv_heads()) mass_.spans[i].attends = heads->kept(in.layer.group);
      if (observed_[i]->layers() == 1) continue;
      mass_.spans[i].mass = observed_[i]->tokens(in.layer.group).mass();
      mass_.spans[i].draft_mass = observed_[i]->tokens(in.layer.group).draft_mass();
    }
    observe_token_mass(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, runner_.limits().context, mass_,
                       in.tiles);
  }

  // The sizes of each KV head's outputs. Not of the last layer, in which not all tokens attend.
  void attended(const AttentionLayer& layer, const Batch&, const float* rows) override {
    if (pruned_.empty() || layer.layer + 1 == runner_.model().spec().layer_count()) return;
    for (const Pruned& one : pruned_) add_head_sizes(layer, rows, one);
  }

 private:
  struct Pruned {
    BatchSpan span;
    int64_t drafted;
    HeadCascade* heads;
  };

  struct Judged {
    TokenEviction* eviction;
    KeyWorthSpan span;
  };

  void observe() {
    if (!std::exchange(added_, true)) runner_.hooks().add(*this);
  }
  // The stream whose tokens were added last: those behind its documents, of which `first` is the first one in the text.
  void judge(TokenEviction& eviction, int64_t first, int64_t drafted) {
    const auto& spans = runner_.batch().spans;
    const int64_t count = spans.back().count, joined = eviction.rule().joined;
    judged_.push_back({&eviction,
                       {.evictor = eviction.rule().evictor.get(),
                        .span = std::ssize(spans) - 1,
                        .drafted = drafted,
                        .skipped = std::clamp<int64_t>(joined - first, 0, count),
                        .documents = eviction.judges_documents(first, count) ? joined : 0,
                        .heads = eviction.heads(),
                        .whole_layers = eviction.rule().scope == EvictionScope::layer}});
    observe();
  }
  static void add_worth(const AttentionInput& in, Judged& one) {
    KeptTokens& tokens = one.eviction->tokens(one.eviction->layers() > 1 ? in.layer.group : 0);
    one.span.worth = tokens.mass();
    one.span.draft_worth = tokens.draft_mass();
    if (one.span.documents > 0) add_document_worth(in.batch, in.layer, in.kernels, in.kv, in.tiles, one.span);
    add_key_worth(in.batch, in.layer, in.kv, {in.k, in.k_stride}, one.span);
  }

  // Streams with budgets by head have sums of each, which the workers share: all are added when the first head is here.
  void queries_apart(const AttentionInput& in, int64_t heads) {
    if (in.layer.layer % heads == 0) {
      spans_.clear();
      for (int64_t head = 0; head < heads; ++head) add_spans(true, in.layer.group + head);
      observe_added(
          [&] { observe_per_head_tables(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, mass_); });
    }
    spans_.clear();
    add_spans(false, 0);
    observe_added([&] {
      observe_token_mass(in.batch, in.layer, in.kernels, runner_.threads(), in.kv, in.q, runner_.limits().context,
                         mass_, in.tiles);
    });
  }
  template <typename Observe>
  void observe_added(const Observe& observe) {
    if (spans_.empty()) return;
    std::swap(mass_.spans, spans_);
    observe();
    std::swap(mass_.spans, spans_);
  }
  // To spans_, of the streams that have one evictor's choice for each table, or of the others.
  void add_spans(bool own, int64_t table) {
    for (size_t i = 0; i < observed_.size(); ++i) {
      if ((observed_[i]->layers() > 1) != own) continue;
      TokenMass::Span& span = spans_.emplace_back(mass_.spans[i]);
      if (!own) continue;
      span.mass = observed_[i]->tokens(table).mass();
      span.draft_mass = observed_[i]->tokens(table).draft_mass();
    }
  }

  static void add_head_sizes(const AttentionLayer& layer, const float* rows, const Pruned& one) {
    const int64_t width = layer.heads * layer.values(), each = width / layer.kv_heads;
    const int64_t own = one.span.count - one.drafted;
    for (int64_t i = 0; i < one.span.count; ++i) {
      int64_t* to =
          i < own ? one.heads->worth().data() : one.heads->draft_worth().data() + (i - own) * one.heads->heads();
      const float* row = rows + (one.span.begin + i) * width;
      for (int64_t head = 0; head < layer.kv_heads; ++head) to[head] += head_size(row + head * each, each);
    }
  }
  static int64_t head_size(const float* values, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += std::fabs(values[i]);
    return std::llround(std::min(static_cast<double>(sum), HeadCascade::kMaxSize) / HeadCascade::kUnit);
  }

  ModelRunner& runner_;
  EvictionGates gates_;
  TokenMass mass_;
  std::vector<TokenMass::Span> spans_;    // spans of heads that have their own tables
  std::vector<TokenEviction*> observed_;  // the eviction of each of the pass's spans
  std::vector<Judged> judged_;
  std::vector<Pruned> pruned_;
  bool added_ = false;  // to the hooks
};

}  // namespace millrace
