// TokenEvictor: decides which tokens of a running stream lose their keys and values, so that the stream stores no more
// than a budget. A member only chooses: it sees which tokens are stored and names the slots to drop. The stream alone
// decides when it is asked (token_eviction.h), never the batch or the prefill chunks. Lossy: answers change. Stateless
// and const, so one evictor serves many streams and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "base/result.h"

namespace millrace {

// The stored tokens of a stream, in slot order, which is their order in the text.
struct StoredTokens {
  std::span<const int32_t> positions;  // ascending; the last token's position - positions[i] is the age of slot i
  // Attention mass that each token has received from the observed queries, summed over the heads and layers that choose
  // together. Empty unless the evictor needs it.
  std::span<const int64_t> mass = {};
  int32_t first_query = 0;  // position of the first query that may have been observed (EvictionRule::joined)
  // The sum of key_worth() of each token's keys, over the heads and layers that choose together. Empty unless the
  // evictor judges keys.
  std::span<const int64_t> worth = {};
};

// Gates of the model's layers that choose instead of an evictor; the checkpoint has them (models/token_gates.h).
enum class TokenGate : uint8_t {
  none,
  pairs,     // each token ends some of those before it
  selection  // a token that is not selected is not stored, and attends to nothing
};

// The queries whose attention an evictor needs, and how it is counted.
struct MassRule {
  static constexpr int64_t kAll = INT64_MAX;
  // The newest ones before a decision. kAll: every query since a token was stored; otherwise sums begin at 0 after each
  // decision, so that at most `slack` queries count for the second one.
  int64_t queries = 0;
  // true: mass counts the queries and heads that give a token at least an even share, instead of attention in units of
  // kMassUnit.
  bool shares = false;
};

// Sums of attention are integers, so they do not depend on the order of heads, layers, queries and chunks.
inline constexpr double kMassUnit = 1.0 / (1 << 30);

class TokenEvictor {
 public:
  virtual ~TokenEvictor() = default;
  virtual int64_t budget() const = 0;  // tokens that remain after a decision, at least 1
  // If every layer has its own budget: the budget of one of `layers` layers, at least 1; in a cascade no larger than
  // that of the layer before. budget() is then their average.
  virtual bool by_layer() const { return false; }
  virtual int64_t budget_of(int64_t /*layer*/, int64_t /*layers*/) const { return budget(); }
  // With budgets by layer: every KV head of a layer has its own budget, and counts as a layer here, head after head.
  virtual bool by_head() const { return false; }
  // Checks that the evictor fits a model of this size; `kv_heads`: of each layer. Errors: user.
  virtual Result<void> check_layers(int64_t /*layers*/, int64_t /*kv_heads*/) const { return {}; }
  // By layer: a token that one layer drops is dropped by all later ones too. The sums are those of all layers, since
  // the first of them stored the token.
  virtual bool cascades() const { return false; }
  // Used by evictors whose budgets differ by layer. Returns how many of a layer's KV heads attend after a decision
  // (kv/head_cascade.h): at least 1, and no more than in the layer before. A layer's keys and values are stored for all
  // heads.
  virtual bool prunes_heads() const { return false; }
  virtual int64_t heads_of(int64_t /*layer*/, int64_t /*layers*/, int64_t heads) const { return heads; }
  virtual MassRule mass_rule() const { return {}; }
  bool needs_mass() const { return mass_rule().queries > 0; }
  // Returns true if tokens are judged by their own keys instead of by attention. StoredTokens::worth is then complete
  // as soon as a token is stored, and stays the same until the token is dropped. Not for cascades.
  virtual bool judges_keys() const { return false; }
  // The worth of the key of one KV head in a layer, after RoPE and before it is encoded. In latent attention the key is
  // the row that all heads share. In a document that was computed separately, it is the key as it is stored. Called by
  // any thread. The absolute value is at most kMaxKeyWorth, so that sums do not overflow.
  virtual int64_t key_worth(std::span<const float> /*key*/) const { return 0; }
  static constexpr int64_t kMaxKeyWorth = int64_t{1} << 40;
  bool needs_sums() const { return needs_mass() || judges_keys(); }  // a sum for each stored token
  // Gates that choose; drop() is then never called. Gates choose during the forward pass, and a decision only returns
  // the memory of tokens that they have ended. Such evictors have budgets by layer.
  virtual TokenGate gate() const { return TokenGate::none; }
  bool gated() const { return gate() != TokenGate::none; }
  // For TokenGate::selection: number of older selected tokens that a token sees; 0: all.
  virtual int64_t window() const { return 0; }
  static constexpr int64_t kUnbounded = int64_t{1} << 40;  // budget() of gates that may keep every token
  // Appends exactly `excess` distinct slots, ascending; 0 < excess < stored tokens. With budgets by layer it is called
  // for one layer after the other; in a cascade a layer sees only the tokens that the layer before it keeps.
  virtual void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const = 0;
};

using TokenEvictorFactory = Result<std::unique_ptr<const TokenEvictor>> (*)(const OptionValues& options);
const Registry<TokenEvictorFactory>& token_evictors();

// Who chooses together; all have the same budget.
enum class EvictionScope : uint8_t { stream, layer, head };

// Positions count the tokens of a stream's text, or the tokens that it stores. In the second case stored tokens are
// moved to lower positions at each decision, so no position exceeds the model's trained context, and the stream may be
// longer than the context. be longer than the context.
enum class EvictionPositions : uint8_t { text, cache };

// An evictor with the options that every member has.
struct EvictionRule {
  std::shared_ptr<const TokenEvictor> evictor;
  int64_t slack = 16;        // tokens stored beyond the budget before the evictor chooses
  bool whole_prompt = true;  // chooses for the first time when the prompt is complete
  EvictionScope scope = EvictionScope::stream;
  EvictionPositions positions = EvictionPositions::text;
  // Number of the prompt's first tokens that end with its documents, if these are computed separately or copied. Set
  // for each request. These tokens are stored whole until `slack` tokens behind them, or the whole prompt, have seen
  // them. Only queries behind them are observed, so the result does not depend on where a document was computed.
  int64_t joined = 0;
  std::string text;  // as given

  bool moves_keys() const { return positions == EvictionPositions::cache; }
  bool by_layer() const { return evictor->by_layer(); }
  bool by_head() const { return by_layer() && evictor->by_head(); }

  int64_t most_stored() const { return evictor->budget() + slack; }
  // Minimum number of tokens of a prompt of `prompt` tokens that are computed before the first decision.
  int64_t whole_tokens(int64_t prompt) const;
  // Number of sets of heads that choose, in a model with `kv_heads` KV heads in the layers that lose tokens. Heads of
  // one layer that choose together have equal sums and so make equal choices.
  int64_t choosers(int64_t kv_heads) const { return scope == EvictionScope::stream || by_layer() ? 1 : kv_heads; }

  // Maximum number of tokens stored in one of the `layers` tables of a stream.
  int64_t most_stored(int64_t layer, int64_t layers) const { return evictor->budget_of(layer, layers) + slack; }
  // Computed tokens at the first decision: when the first of the tables is full.
  int64_t first_decision(int64_t prompt, int64_t layers) const;
};

// `text` is NAME[:key=value,...]; null for "" and "none". Errors (user): unknown name or option.
Result<std::shared_ptr<const EvictionRule>> make_eviction_rule(std::string_view text);

// Maximum number of tokens that a stream of `total` tokens stores at once, if `prompt` of them are still to be computed
// as its prompt. A null rule keeps all. Memory plan, request check and simulation use this. Planner and admission use
// Sequence::kv_demand(), which continues it for a running stream. If `layers` tables have their own budgets: the
// average, rounded up.
int64_t kv_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers = 1);
// kv_demand() of one table.
int64_t layer_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layer, int64_t layers);
// kv_demand() of the table that stores most.
int64_t most_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers);
// Blocks for that, in all tables.
int64_t blocks_demand(const EvictionRule* rule, int64_t prompt, int64_t total, int64_t layers, int64_t block_tokens);
// Number of tokens that a stream with this prompt stores after `computed` of its tokens are computed and due tokens are
// evicted. With several tables: their average, rounded up. For a cascade this is an upper bound.
int64_t stored_tokens(const EvictionRule* rule, int64_t prompt, int64_t computed, int64_t layers = 1);

}  // namespace millrace
