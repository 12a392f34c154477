// PrefixIndex: finds blocks that already hold the keys and values of a prompt's beginning.
//
// Full blocks form chains (kv/prefix_key.h), the tenant's salt at the root. A hash hit is verified by its tokens, its
// parent and its tenant, so a collision costs a miss and never a wrong answer.
// The index holds one reference to each of its blocks. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "kv/pool.h"
#include "kv/prefix_key.h"
#include "kv/prefix_tree.h"
#include "millrace/token.h"

namespace millrace {

struct PrefixIndexOptions {
  uint64_t identity = 0;                   // separates what must not be shared: model, KV format, adapter
  const PrefixEvictor* evictor = nullptr;  // null: the first of prefix_evictors()
  const Clock* clock = nullptr;            // outlives the index; null: no time passes
  // Told of every block that leaves the index, while its bytes are still there; may be empty.
  std::function<void(const ChainLink&, BlockId)> leaving = {};
};

struct PrefixStats {
  int64_t queries = 0;       // lookups
  int64_t query_tokens = 0;  // that were looked up
  int64_t hit_tokens = 0;    // of those, found
  PrefixTreeStats blocks;
};

class PrefixIndex {
 public:
  PrefixIndex(KvPool& pool, const PrefixIndexOptions& options);
  PrefixIndex(KvPool& pool, uint64_t identity)
      : PrefixIndex(pool, PrefixIndexOptions{identity, nullptr, nullptr, {}}) {}
  ~PrefixIndex() { clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest run of indexed full blocks that `tokens` begins with, each with one more reference. Prompts of
  // different tenants never meet; equal salts share by choice.
  std::vector<BlockId> match(std::span<const TokenId> tokens, uint64_t tenant = 0);

  // How many full blocks of `tokens` the index holds, from the first one on; does not count as a use.
  int64_t known_blocks(std::span<const TokenId> tokens, uint64_t tenant = 0) const;

  // Indexes every full block of a stream; blocks[i] holds tokens [i * block_tokens, (i + 1) * block_tokens).
  // A block whose content is already indexed elsewhere is left alone. For `keep_seconds` they go only when nothing else
  // is left: a wish, for memory that was promised to a stream is never withheld. `importance`: of the first blocks,
  // where it was observed.
  void insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks, uint64_t tenant = 0,
              double keep_seconds = 0, std::span<const float> importance = {});

  // Lets go of up to `count` blocks that nobody else holds, in the evictor's order. Returns how many: fewer only when
  // there are no more such blocks.
  int64_t evict(int64_t count);

  int64_t size() const { return tree_.size(); }
  int64_t evictable() const;  // blocks that only the index holds
  void clear();
  PrefixStats stats() const;

 private:
  struct Entry {
    PrefixKey key;
    uint64_t tenant = 0;
    std::vector<TokenId> tokens;
    BlockId block = -1;  // -1: the node is unused
  };
  PrefixTree::Node find(const PrefixKey& key, PrefixTree::Node parent, uint64_t tenant,
                        std::span<const TokenId> tokens) const;
  void erase(PrefixTree::Node leaf);
  bool held(PrefixTree::Node node) const { return pool_.references(entries_[static_cast<size_t>(node)].block) > 1; }
  double now() const { return clock_ ? static_cast<double>(clock_->now_ns()) * 1e-9 : 0; }

  KvPool& pool_;
  uint64_t identity_;
  const Clock* clock_;
  std::function<void(const ChainLink&, BlockId)> leaving_;
  PrefixTree tree_;
  std::vector<Entry> entries_;  // by node
  std::unordered_map<PrefixKey, PrefixTree::Node, PrefixKeyHash> nodes_;
  PrefixStats stats_;
};

}  // namespace millrace
