#include "engine/prefix_cache.h"

#include <fmt/format.h>

#include "run/adapter_registry.h"
#include "run/kv_places.h"
#include "run/prompt_embeddings.h"

namespace millrace {

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(LoopContext& loop, const EngineOptions& options) {
  auto cache = std::unique_ptr<PrefixCache>(new PrefixCache(loop.kv()));
  const KvLayout& layout = loop.kv().layout();
  // Blocks alone cannot continue a stream that needs a recurrent state or a residual of raw rows.
  if (!options.prefix_cache || !layout.prefixes_shared()) {
    if (has_store(options)) return Error::user("KV store: holds blocks of the prefix cache, which is switched off");
    return cache;
  }
  const PrefixEvictor* evictor = find_prefix_evictor(options.prefix_evict);
  if (!evictor)
    return Error::user(
        fmt::format("prefix evictor: unknown '{}'; available: {}", options.prefix_evict, prefix_evictors().names()));
  if (has_store(options)) {
    MILLRACE_TRY(cache->store_, loop.executor->home().make_store(options));
  }
  // The identity stays 0: an index lives and dies with one model and KV format, adapters are in the scope, and the
  // store's file names the model. The store's keys begin with it, so another value would make existing files useless.
  cache->index_ = std::make_unique<PrefixIndex>(
      loop.kv(),
      PrefixIndexOptions{.identity = 0, .evictor = evictor, .clock = loop.clock, .leaving = cache->store_hook()});
  const bool packs = (!options.kv_ssd.empty() && options.kv_ssd_order == "importance") ||
                     (cache->store_ && cache->store_->wants_importance());
  if (!options.kv_store.empty() && options.kv_ssd_fetch < 1 && !packs)
    return Error::user("KV store: to fetch a part of a prompt its blocks must be in order of importance");
  const bool observes = packs || (evictor->needs & kNeedsAttentionMass);
  if (observes) loop.executor->observe_attention();
  return cache;
}

PrefixCache::~PrefixCache() {
  if (!store_ || !index_) return;
  closing_ = true;
  const int64_t capacity = store_->stats().capacity;
  closing_skips_ = capacity < 0 ? 0 : index_->size() - capacity;
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

void PrefixCache::insert(const LiveStream& stream) {
  const Sequence& s = stream.sequence;
  if (!s.prefix.caches || s.computed == 0) return;
  std::vector<PrefixBlocks> groups{{s.kv.blocks, s.kv.dead_blocks}};
  for (const WindowBlocks& window : s.kv.windows) groups.push_back({window.blocks, window.dead});
  index_->insert_groups(std::span(s.tokens).first(static_cast<size_t>(s.shareable())), groups, s.prefix.scope,
                        s.request.keep_seconds, stream.importance);
}

void PrefixCache::add_stats(EngineStats& stats) const {
  if (!index_) return;
  const PrefixStats index = index_->stats();
  stats.kv_blocks_cached = index_->size();
  stats.prefix = {index.queries,       index.query_tokens,    index.hit_tokens,  index.blocks.stored,
                  index.blocks.erased, index.blocks.lifetime, index.blocks.idle, index.blocks.reuse_gap};
}

}  // namespace millrace
