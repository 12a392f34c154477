#include "kv/prefix_index.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace millrace {

PrefixIndex::Key PrefixIndex::chain(const Key& parent, std::span<const TokenId> tokens) const {
  // The parent enters as the seed; what a 64-bit seed cannot tell apart, find() does.
  const uint64_t seed = identity_ ^ parent.low ^ std::rotl(parent.high, 32);
  XXH128_hash_t hash = XXH3_128bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
  return {hash.low64, hash.high64};
}

PrefixIndex::Entry* PrefixIndex::find(const Key& key, const Key& parent, std::span<const TokenId> tokens) {
  auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  Entry& entry = found->second;
  if (entry.parent != parent || !std::ranges::equal(entry.tokens, tokens)) return nullptr;
  return &entry;
}

std::vector<BlockId> PrefixIndex::match(std::span<const TokenId> tokens) {
  std::vector<BlockId> blocks;
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  Key parent;
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    auto piece = tokens.subspan(begin, block_tokens);
    Key key = chain(parent, piece);
    Entry* entry = find(key, parent, piece);
    if (!entry) break;
    pool_.share(entry->block);
    blocks.push_back(entry->block);
    recency_.splice(recency_.end(), recency_, entry->recency);
    parent = key;
  }
  return blocks;
}

void PrefixIndex::insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks) {
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  Key parent;
  for (size_t i = 0; (i + 1) * block_tokens <= tokens.size() && i < blocks.size(); ++i) {
    auto piece = tokens.subspan(i * block_tokens, block_tokens);
    Key key = chain(parent, piece);
    if (Entry* known = find(key, parent, piece)) {
      recency_.splice(recency_.end(), recency_, known->recency);
    } else {
      if (entries_.contains(key)) return;  // a collision: leave the other chain alone
      pool_.share(blocks[i]);
      recency_.push_back(key);
      entries_[key] = {parent, {piece.begin(), piece.end()}, blocks[i], 0, std::prev(recency_.end())};
      if (auto above = entries_.find(parent); above != entries_.end()) ++above->second.children;
    }
    parent = key;
  }
}

void PrefixIndex::erase(const Key& key) {
  auto found = entries_.find(key);
  pool_.release(found->second.block);
  recency_.erase(found->second.recency);
  if (auto above = entries_.find(found->second.parent); above != entries_.end()) --above->second.children;
  entries_.erase(found);
}

int64_t PrefixIndex::evict(int64_t count) {
  int64_t evicted = 0;
  bool progress = true;
  while (evicted < count && progress) {  // removing a leaf may make its parent a leaf: look again
    progress = false;
    for (auto it = recency_.begin(); it != recency_.end() && evicted < count;) {
      Key key = *it++;
      const Entry& entry = entries_.at(key);
      if (entry.children > 0 || pool_.references(entry.block) > 1) continue;
      erase(key);
      ++evicted;
      progress = true;
    }
  }
  return evicted;
}

int64_t PrefixIndex::evictable() const {
  int64_t count = 0;
  for (const auto& [key, entry] : entries_) count += pool_.references(entry.block) == 1;
  return count;
}

void PrefixIndex::clear() {
  for (const auto& [key, entry] : entries_) pool_.release(entry.block);
  entries_.clear();
  recency_.clear();
}

}  // namespace millrace
