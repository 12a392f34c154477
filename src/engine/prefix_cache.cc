#include "engine/prefix_cache.h"

#include <fmt/format.h>

#include <numeric>

#include "run/adapter_registry.h"
#include "run/prompt_embeddings.h"

namespace millrace {

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(LoopContext& loop, const EnginePlan& plan) {
  const EngineOptions& options = plan.options;
  auto cache = std::unique_ptr<PrefixCache>(new PrefixCache(loop.kv()));
  const KvLayout& layout = loop.kv().layout();
  // Blocks alone cannot continue a stream that needs a recurrent state or a residual of raw rows. A pool may
  // have slots for copies of states.
  const bool copies = layout.recurrent() && loop.kv().states().copies() > 0;
  if (!options.prefix_cache || !(layout.prefixes_shared() || copies)) {
    if (plan.store && options.prefix_cache)
      return Error::user(
          "KV store: holds blocks of the prefix cache, which has no memory for copies of the recurrent states; raise "
          "the state cache or the memory budget");
    if (plan.store) return Error::user("KV store: holds blocks of the prefix cache, which is switched off");
    return cache;
  }
  const PrefixEvictor* evictor = plan.prefix_evictor;
  if (!evictor)
    return Error::user(
        fmt::format("prefix evictor: unknown '{}'; available: {}", options.prefix_evict, prefix_evictors().names()));
  if (plan.store) {
    MILLRACE_TRY(cache->store_, loop.executor->home().make_store(*plan.store));
    cache->fetched_fraction_ = millrace::fetched_fraction(*plan.store);
  }
  if (copies) {
    MILLRACE_TRY(cache->state_evictor_, make_state_evictor(options.state_evict));
    cache->state_stride_ = std::lcm(options.state_stride, cache->block_tokens_);
  }
  // The identity stays 0: an index lives and dies with one model and KV format, adapters are in the scope, and the
  // store's file names the model. The store's keys begin with it, so another value would make existing files useless.
  cache->index_ = std::make_unique<PrefixIndex>(loop.kv(), PrefixIndexOptions{.identity = 0,
                                                                              .evictor = evictor,
                                                                              .clock = loop.clock,
                                                                              .states = cache->state_evictor_.get(),
                                                                              .leaving = cache->store_hook(),
                                                                              .state_leaving = cache->state_hook()});
  const bool packs = plan.store && (by_importance(*plan.store) || cache->store_->wants_importance());
  const bool observes = packs || (evictor->needs & kNeedsAttentionMass);
  if (observes) loop.executor->observe_attention();
  return cache;
}

PrefixCache::~PrefixCache() {
  if (!store_ || !index_) return;
  closing_ = true;
  const PrefixStoreStats stats = store_->stats();
  closing_skips_ =
      stats.capacity < 0 ? 0 : index_->size() + index_->states().size() * stats.state_blocks - stats.capacity;
  index_.reset();
}

std::function<void(const ChainLink&, BlockId)> PrefixCache::store_hook() {
  if (!store_) return {};
  return [this](const ChainLink& link, BlockId block) {
    if (link.tokens.back() == kFillToken) return;
    if (closing_ && closing_skips_-- > 0) return;
    store_->put(link, block, closing_);
  };
}

std::function<void(const PrefixKey&, StateId)> PrefixCache::state_hook() {
  if (!store_) return {};
  return [this](const PrefixKey& behind, StateId slot) {
    if (closing_ && closing_skips_ > 0)
      closing_skips_ -= store_->stats().state_blocks;
    else
      store_->put_state({behind, slot}, closing_);
  };
}

void PrefixCache::share_state(PrefixTree::Node node, StateId state) {
  if (store_ && store_->is_shared()) store_->put_state({index_->key_of(node), state}, false);
}

uint64_t PrefixCache::scope_of(const Request& request, const LoraMix& adapters, bool has_parts, int64_t layers) {
  return scopes_.of(request.tenant, request.prefix_group, adapter_identity(adapters),
                    has_parts ? "" : embeddings_identity(request), layers);
}

int64_t PrefixCache::cached_tokens(const Request& request, int64_t layers) {
  if (!index_ || !request.cache_prompt || request.prompt.empty()) return 0;
  const uint64_t scope = scopes_.of(request.tenant, request.prefix_group, "", embeddings_identity(request), layers);
  return index_->known_blocks(std::span(request.prompt).first(request.prompt.size() - 1), scope) * block_tokens_;
}

int64_t PrefixCache::known_tokens(const Sequence& s) const {
  return index_->known_blocks(std::span(s.tokens).first(static_cast<size_t>(s.adoptable())), s.prefix.scope) *
         block_tokens_;
}

int64_t PrefixCache::stored_tokens(const Sequence& s) const {
  return index_->stored_blocks(std::span(s.tokens).first(static_cast<size_t>(s.adoptable())), s.prefix.scope) *
         block_tokens_;
}

std::vector<PrefixTree::Node> PrefixCache::insert(const LiveStream& stream) {
  const Sequence& s = stream.sequence;
  if (!s.prefix.caches || s.computed == 0) return {};
  std::vector<PrefixBlocks> groups{{s.kv.blocks, s.kv.dead_blocks}};
  for (const WindowBlocks& window : s.kv.windows) groups.push_back({window.blocks, window.dead});
  return index_->insert_groups(std::span(s.tokens).first(static_cast<size_t>(s.shareable())), groups, s.prefix.scope,
                               s.request.keep_seconds, stream.importance);
}

void PrefixCache::add_stats(EngineStats& stats) const {
  if (!index_) return;
  const PrefixStats index = index_->stats();
  stats.kv_blocks_cached = index_->size();
  stats.prefix = {index.queries,       index.query_tokens,    index.hit_tokens,  index.blocks.stored,
                  index.blocks.erased, index.blocks.lifetime, index.blocks.idle, index.blocks.reuse_gap};
  const PrefixStateStats& states = index_->states().stats();
  stats.state_cache.held = index_->states().held();
  stats.state_cache.stored = states.stored;
  stats.state_cache.replaced = states.replaced;
  stats.state_cache.evicted = states.evicted;
  stats.state_cache.hits = states.hits;
}

}  // namespace millrace
