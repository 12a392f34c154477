// PrefixCache: the prefix index with its scopes, and the prefix store behind it, if there is one. Blocks that the index
// evicts are handed to the store, and when the cache is destroyed, so are those that the index still has. Copies of
// recurrent states are handed to the store in the same cases.
#pragma once

#include <functional>
#include <memory>

#include "engine/live_stream.h"
#include "engine/loop_context.h"
#include "engine/prefix_scopes.h"
#include "kv/prefix_index.h"
#include "kv/tiers/prefix_store.h"
#include "models/lora/adapter.h"
#include "run/plan/engine_plan.h"

namespace millrace {

class PrefixCache {
 public:
  // `loop` has its executor and clock, and outlives the cache. Errors: user (an option), and those of
  // KvHome::make_store().
  static Result<std::unique_ptr<PrefixCache>> create(LoopContext& loop, const EnginePlan& plan);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  PrefixIndex* index() { return index_.get(); }                  // null: switched off
  PrefixStore* store() { return store_.get(); }                  // null: evicted blocks are lost
  double fetched_fraction() const { return fetched_fraction_; }  // the part of a prompt's stored blocks that is loaded
  int64_t block_tokens() const { return block_tokens_; }
  // Models with recurrent layers: a prefix continues a stream only behind a multiple of the stride whose state was
  // copied. False: blocks alone continue it, and the stride is that of blocks.
  bool copies_states() const { return state_evictor_ != nullptr; }
  int64_t state_stride() const { return state_stride_; }
  const StateEvictor& state_evictor() const { return *state_evictor_; }
  // `has_parts`: rows in place of tokens are links behind documents, which no shared block depends on.
  // `layers`: that its streams store, if an exit gate skips others; 0: all.
  uint64_t scope_of(const Request& request, const LoraMix& adapters, bool has_parts = false, int64_t layers = 0);
  // Number of the prompt's tokens whose blocks the index has now.
  int64_t cached_tokens(const Request& request, int64_t layers = 0);
  // Number of the stream's tokens whose blocks the index has now, without the last token: at least one is computed, to
  // sample the next one.
  int64_t known_tokens(const Sequence& sequence) const;
  // Like known_tokens(), but also counts blocks after the last copy of a recurrent state, which cannot continue a
  // stream by themselves.
  int64_t stored_tokens(const Sequence& sequence) const;
  // Inserts the full blocks that the stream has computed. The stream keeps them, too. Returns their nodes.
  std::vector<PrefixTree::Node> insert(const LiveStream& stream);
  // Copies the state behind a node's block to the store, if other engines read the store at the same time.
  void share_state(PrefixTree::Node node, StateId state);
  void add_stats(EngineStats& stats) const;

 private:
  explicit PrefixCache(const KvPool& pool) : block_tokens_(pool.layout().block_tokens), state_stride_(block_tokens_) {}
  std::function<void(const ChainLink&, BlockId)> store_hook();
  std::function<void(const PrefixKey&, StateId)> state_hook();

  int64_t block_tokens_;
  int64_t state_stride_;
  std::unique_ptr<const StateEvictor> state_evictor_;  // outlives the index; null: no states
  std::unique_ptr<PrefixStore> store_;                 // outlives the index, which hands it blocks to the end
  std::unique_ptr<PrefixIndex> index_;
  double fetched_fraction_ = 1;
  PrefixScopes scopes_;
  bool closing_ = false;
  int64_t closing_skips_ = 0;  // at the end, blocks that later ones would displace from the store
};

}  // namespace millrace
