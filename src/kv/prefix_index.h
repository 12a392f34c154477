// PrefixIndex: finds blocks that already hold the keys and values of a prompt's prefix.
//
// Full blocks form chains (kv/prefix_key.h) rooted at the tenant's salt. A hash hit is verified by tokens, parent and
// tenant, so a collision costs a miss and never a wrong answer. The index holds one reference to each of its blocks.
// Not thread-safe.
//
// In a pool with further groups (kv/window_groups.h), an entry of the index may also have a block in each of these
// groups, which is evicted independently. A prefix continues a stream if the groups have the blocks of its last tokens,
// as many as the window sees.
//
// Where layers are recurrent, a prefix continues a stream if its last block has a copy of their state
// (kv/prefix_states.h). Such a pool has one group.
#pragma once

#include <cassert>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "kv/pool.h"
#include "kv/prefix_key.h"
#include "kv/prefix_states.h"
#include "kv/prefix_tree.h"
#include "millrace/token.h"

namespace millrace {

struct PrefixIndexOptions {
  uint64_t identity = 0;                   // separates content that must not be shared: model, KV format, adapter
  const PrefixEvictor* evictor = nullptr;  // null: the first of prefix_evictors()
  const Clock* clock = nullptr;            // outlives the index; null: time stands still
  const StateEvictor* states = nullptr;    // outlives the index; null: blocks alone continue a stream
  // Called for every block that leaves the index, while its bytes are still valid; may be empty.
  std::function<void(const ChainLink&, BlockId)> leaving = {};
  // Called for every copy of a state that is evicted, with the key of the block before it; may be empty.
  std::function<void(const PrefixKey&, StateId)> state_leaving = {};
};

struct PrefixStats {
  int64_t queries = 0;       // lookups
  int64_t query_tokens = 0;  // in all lookups
  int64_t hit_tokens = 0;    // requested tokens that were found in the index
  int64_t hashed = 0;        // blocks whose keys were computed; for tests
  PrefixTreeStats blocks;
};

// Blocks of a stream in one group: blocks[i] holds tokens [i * block_tokens, (i + 1) * block_tokens). The first `dead`
// ones were given back.
struct PrefixBlocks {
  std::span<const BlockId> blocks;
  int64_t dead = 0;
};

// A matched prefix. It holds one reference to each block of the first group, and to the blocks of other groups that a
// window sees.
struct PrefixMatch {
  struct Window {
    std::vector<BlockId> blocks;  // as many as in the first group
    int64_t dead = 0;             // leading entries without a block
  };
  std::vector<BlockId> blocks;
  std::vector<Window> windows;  // blocks of groups 1, 2, ...
  // The copy of the state behind the last block, which the index keeps until its next change; -1: none.
  StateId state = PrefixStates::kNone;
};

class PrefixIndex {
 public:
  PrefixIndex(KvPool& pool, const PrefixIndexOptions& options);
  PrefixIndex(KvPool& pool, uint64_t identity)
      : PrefixIndex(pool, PrefixIndexOptions{identity, nullptr, nullptr, nullptr, {}, {}}) {}
  ~PrefixIndex() { clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Returns the longest prefix of `tokens` that is indexed in full blocks; adds one reference to each block. Prompts of
  // different tenants never share blocks; tenants with equal salts do. For pools with one group.
  std::vector<BlockId> match(std::span<const TokenId> tokens, uint64_t tenant = 0) {
    assert(pool_.groups() == 1);  // else the references to blocks of other groups would be lost
    return match_groups(tokens, tenant).blocks;
  }
  // Variant of match() for pools with any number of groups: returns the longest prefix that can continue a stream.
  PrefixMatch match_groups(std::span<const TokenId> tokens, uint64_t tenant = 0);

  // Number of leading full blocks that the index holds, as far as they can continue a stream without windows; does not
  // count as a use.
  int64_t known_blocks(std::span<const TokenId> tokens, uint64_t tenant = 0) const;
  // Like known_blocks(), but also counts blocks after the last copy of a state, which cannot continue a stream by
  // themselves.
  int64_t stored_blocks(std::span<const TokenId> tokens, uint64_t tenant = 0) const {
    return std::ssize(path_of(tokens, tenant));
  }

  // Indexes every full block of a stream; blocks[i] holds tokens [i * block_tokens, (i + 1) * block_tokens). A block
  // whose content is already indexed is skipped. For `keep_seconds` the blocks are evicted only as a last resort: this
  // is a hint, memory that was promised to a stream is never withheld. `importance`: observed for the first blocks; may
  // be shorter.
  void insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks, uint64_t tenant = 0,
              double keep_seconds = 0, std::span<const float> importance = {}) {
    const PrefixBlocks group{blocks};
    insert_groups(tokens, {&group, 1}, tenant, keep_seconds, importance);
  }
  // Inserts the blocks of every group. The prefix ends at the first token without a block of the first group, unless it
  // is indexed already. Returns the nodes of the prefix.
  std::vector<PrefixTree::Node> insert_groups(std::span<const TokenId> tokens, std::span<const PrefixBlocks> groups,
                                              uint64_t tenant = 0, double keep_seconds = 0,
                                              std::span<const float> importance = {});

  // Copies a `state` (slot_values()) that is behind `tokens`: full blocks that are all indexed. Returns false if they
  // are not, or if there is no slot for a copy.
  bool store_state(std::span<const TokenId> tokens, uint64_t tenant, std::span<const float> state);
  // Variants for nodes that insert_groups() has just returned. The state is behind the block of the last one.
  bool store_state_behind(std::span<const PrefixTree::Node> path, std::span<const float> state);
  // The node's stream has stored a later state: drops the copy behind the node if only that stream has used it.
  void replace_state_behind(PrefixTree::Node node) { states_.replace(node); }
  const PrefixKey& key_of(PrefixTree::Node node) const { return entries_[static_cast<size_t>(node)].key; }
  // Variant for a lent slot (PrefixStates::lend()) that holds the state. It becomes the copy, or is taken back.
  void adopt_state(std::span<const TokenId> tokens, uint64_t tenant, StateId slot);
  // Blocks [first, end) of `tokens`, which are all indexed; adds one reference to each. Does not count as a use.
  std::vector<BlockId> share(std::span<const TokenId> tokens, uint64_t tenant, int64_t first, int64_t end);

  // Evicts up to `count` blocks that only the index references, in the evictor's order. Returns the number evicted; it
  // is less than `count` only when there are no more such blocks.
  int64_t evict(int64_t count);

  // Evicts one block of another group that only the index references: in turn, those found since the last turn later.
  bool evict_window(int64_t group);

  int64_t size() const { return tree_.size(); }
  int64_t window_size(int64_t group) const;  // blocks of another group
  int64_t evictable() const;                 // blocks that only the index references
  void clear();
  PrefixStats stats() const;
  const PrefixStates& states() const { return states_; }
  PrefixStates& states() { return states_; }

 private:
  struct Entry {
    PrefixKey key;
    uint64_t tenant = 0;
    std::vector<TokenId> tokens;
    BlockId block = -1;                 // -1: unused node
    std::vector<BlockId> windows = {};  // blocks of groups 1, 2, ...; -1: none
    bool found = false;                 // by a lookup that used them, since the last turn
  };
  // The nodes of the leading full blocks that are indexed.
  std::vector<PrefixTree::Node> path_of(std::span<const TokenId> tokens, uint64_t tenant) const;
  int64_t usable(std::span<const PrefixTree::Node> path) const;
  void add_windows(PrefixTree::Node node, size_t index, std::span<const PrefixBlocks> groups);
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
  PrefixStates states_;
  std::vector<Entry> entries_;  // by node
  std::unordered_map<PrefixKey, PrefixTree::Node, PrefixKeyHash> nodes_;
  std::vector<size_t> turn_;  // for each further group, the entry whose turn it is
  PrefixStats stats_;
  mutable int64_t hashed_ = 0;
};

}  // namespace millrace
