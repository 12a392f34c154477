// TokenEviction: runs an evictor on one stream. It knows the position of every stored token, collects the attention
// that each receives, and says when to choose and which tokens to keep. A decision is due whenever the stream stores
// `slack` tokens more than the budget. The first one may wait until the prompt is complete (EvictionRule). Decisions
// depend on the stream alone; the engine ends a chunk where one is due. Layers with their own budgets decide together,
// when `slack` tokens have been stored since the last decision: each layer that stores more than its budget drops some.
// Not thread-safe.
//
//   budget 6, slack 2    stored  0 1 2 3 4 5 6 7    full: drop two    0 1 4 5 6 7     next decision two tokens later
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/gated_tokens.h"
#include "kv/head_cascade.h"
#include "kv/kept_tokens.h"
#include "kv/token_cascade.h"
#include "kv/token_evictor.h"

namespace millrace {

class TokenEviction {
 public:
  // `total`: maximum number of tokens of the stream, which begins with the `prompt` tokens of the prompt. `kv_heads`:
  // KV heads of all layers that lose tokens. `layers`: number of tables of the stream; one for each layer if layers
  // have their own budgets.
  TokenEviction(std::shared_ptr<const EvictionRule> rule, int64_t prompt, int64_t total, int64_t kv_heads = 1,
                int64_t layers = 1);

  // So that a step allocates nothing, with drafts of up to `drafted` tokens. `gate_dims`: of the model's gates.
  void reserve(int64_t drafted, int64_t gate_dims = 0);
  const EvictionRule& rule() const { return *rule_; }
  int64_t heads() const { return heads_; }  // that choose for themselves; 1: all choose together
  // layers that drop tokens independently; 1: all drop the same slots
  int64_t layers() const { return std::ssize(layers_); }
  int64_t next() const;                          // computed tokens at which the next decision is due
  int64_t most_stored(int64_t layer = 0) const;  // tokens stored at once, at most, from now on
  int64_t first_observed() const;  // index in the text of the first query whose attention counts for that decision
  // Returns true if the documents' stored keys are judged in the pass that computes the tokens [first, first + count)
  // of the text: that of the first token behind them, or of the prompt's last one. Only for evictors that judge keys.
  bool judges_documents(int64_t first, int64_t count) const;
  int64_t evicted(int64_t layer = 0) const { return layers_[static_cast<size_t>(layer)].evicted(); }
  // Average over all layers, rounded up.
  int64_t mean_evicted() const;
  // Returns the position of token `index` of the text, which is not stored yet (EvictionPositions).
  int64_t position(int64_t index) const { return rule_->moves_keys() ? index - evicted() : index; }
  int64_t decisions() const { return decisions_; }

  // One layer's tokens, with their sums. Where all drop the same, there is one for all.
  KeptTokens& tokens(int64_t layer = 0) { return layers_[static_cast<size_t>(layer)]; }
  // Data of a layer's gates about the stored tokens; only where gates choose.
  GatedTokens& gated(int64_t layer = 0) { return gated_[static_cast<size_t>(layer)]; }
  // Null unless the evictor prunes heads: all heads attend.
  HeadCascade* kv_heads() { return kv_heads_ ? &*kv_heads_ : nullptr; }
  std::span<int64_t> mass(int64_t slots) { return tokens().mass(slots); }
  std::span<int64_t> draft_mass(int64_t drafted, int64_t slots) { return tokens().draft_mass(drafted, slots); }
  // The next drafted token is kept.
  void keep_drafted();
  // Nothing is computed any longer; the decisions will be made again, with the same results.
  void start_again();
  // Chooses which tokens remain. Called when next() tokens are computed. Returns their slots, [heads(), budget],
  // ascending in each head and valid until the next call. If there are several layers, these are the slots of the
  // first; tokens(layer).kept() returns those of each.
  std::span<const int32_t> decide();
  // [stored, heads()], of the tokens that the last decision has kept.
  std::span<const int32_t> positions(int64_t layer = 0) const {
    return layers_[static_cast<size_t>(layer)].positions();
  }

 private:
  void drop_ended();

  std::shared_ptr<const EvictionRule> rule_;
  int64_t prompt_, total_, heads_;
  int64_t decisions_ = 0, last_ = 0;  // computed tokens at the last decision
  std::vector<KeptTokens> layers_;
  std::vector<GatedTokens> gated_;  // one for each layer, where gates choose
  TokenCascade cascade_;
  std::optional<HeadCascade> kv_heads_;
};

// Calls move(slot, count, positions) for the runs of slots whose tokens are read from slots that are -positions higher.
// If positions are slots (EvictionPositions::cache), their keys are rotated by `positions`. `kept`: the result of
// decide().
template <typename Move>
void for_moved_runs(std::span<const int32_t> kept, const Move& move) {
  for (int64_t begin = 0, end; begin < std::ssize(kept); begin = end) {
    const int64_t shift = begin - kept[static_cast<size_t>(begin)];
    for (end = begin + 1; end < std::ssize(kept) && end - kept[static_cast<size_t>(end)] == shift;) ++end;
    if (shift != 0) move(begin, end - begin, shift);
  }
}

// The first slot whose token changes, in some head: kept by `heads` heads, as decide() returns it.
int64_t first_moved(std::span<const int32_t> kept, int64_t heads);

// Bytes of a TokenEviction that stores at most `stored` tokens, on average over its tables, in steps of at most
// `drafted` drafted tokens, for a model with gates of `gate_dims` dims.
int64_t eviction_bytes(const EvictionRule& rule, int64_t stored, int64_t drafted, int64_t kv_heads = 1,
                       int64_t layers = 1, int64_t gate_dims = 0);

}  // namespace millrace
