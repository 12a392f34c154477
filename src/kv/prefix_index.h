// PrefixIndex: finds blocks that already hold the keys and values of a prompt's beginning.
//
// Full blocks form chains: key(block) = hash(key(previous block), tokens of the block). A hash hit is
// verified by its tokens and its parent, so a collision costs a miss and never a wrong answer. The index
// holds one reference to each of its blocks. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/pool.h"
#include "millrace/token.h"

namespace millrace {

class PrefixIndex {
 public:
  // `identity` separates what must not be shared: model, KV format, adapter, tenant.
  PrefixIndex(KvPool& pool, uint64_t identity) : pool_(pool), identity_(identity) {}
  ~PrefixIndex() { clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest run of indexed full blocks that `tokens` begins with, each with one more reference.
  std::vector<BlockId> match(std::span<const TokenId> tokens);

  // Indexes every full block of a stream; blocks[i] holds tokens [i * block_tokens, (i + 1) * block_tokens).
  // A block whose content is already indexed elsewhere is left alone.
  void insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks);

  // Lets go of up to `count` blocks that nobody else holds, least recently used leaves first. Returns how many.
  int64_t evict(int64_t count);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t evictable() const;  // blocks that only the index holds
  void clear();

 private:
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash { size_t operator()(const Key& key) const { return key.low; } };
  struct Entry {
    Key parent;
    std::vector<TokenId> tokens;
    BlockId block = -1;
    int64_t children = 0;
    std::list<Key>::iterator recency;  // front: least recently used
  };
  Key chain(const Key& parent, std::span<const TokenId> tokens) const;
  Entry* find(const Key& key, const Key& parent, std::span<const TokenId> tokens);
  void erase(const Key& key);

  KvPool& pool_;
  uint64_t identity_;
  std::unordered_map<Key, Entry, KeyHash> entries_;
  std::list<Key> recency_;
};

}  // namespace millrace
