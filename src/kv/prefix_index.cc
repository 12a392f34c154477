#include "kv/prefix_index.h"

#include <algorithm>

namespace millrace {

using Node = PrefixTree::Node;

PrefixIndex::PrefixIndex(KvPool& pool, const PrefixIndexOptions& options)
    : pool_(pool),
      identity_(options.identity),
      clock_(options.clock),
      leaving_(options.leaving),
      tree_(options.evictor ? *options.evictor : *prefix_evictors().members().front()) {}

Node PrefixIndex::find(const PrefixKey& key, Node parent, uint64_t tenant, std::span<const TokenId> tokens) const {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return PrefixTree::kNone;
  const Entry& entry = entries_[static_cast<size_t>(found->second)];
  if (tree_.parent(found->second) != parent || entry.tenant != tenant || !std::ranges::equal(entry.tokens, tokens))
    return PrefixTree::kNone;
  return found->second;
}

std::vector<BlockId> PrefixIndex::match(std::span<const TokenId> tokens, uint64_t tenant) {
  std::vector<BlockId> blocks;
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  PrefixKey above = root_key(tenant, identity_);
  Node parent = PrefixTree::kNone;
  tree_.begin_use(now());
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    const auto piece = tokens.subspan(begin, block_tokens);
    above = next_key(above, piece);
    const Node node = find(above, parent, tenant, piece);
    if (node == PrefixTree::kNone) break;
    pool_.share(entries_[static_cast<size_t>(node)].block);
    blocks.push_back(entries_[static_cast<size_t>(node)].block);
    tree_.use(node);
    parent = node;
  }
  ++stats_.queries;
  stats_.query_tokens += static_cast<int64_t>(tokens.size());
  stats_.hit_tokens += static_cast<int64_t>(blocks.size() * block_tokens);
  return blocks;
}

int64_t PrefixIndex::known_blocks(std::span<const TokenId> tokens, uint64_t tenant) const {
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  PrefixKey above = root_key(tenant, identity_);
  Node parent = PrefixTree::kNone;
  int64_t known = 0;
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens, ++known) {
    const auto piece = tokens.subspan(begin, block_tokens);
    above = next_key(above, piece);
    parent = find(above, parent, tenant, piece);
    if (parent == PrefixTree::kNone) break;
  }
  return known;
}

void PrefixIndex::insert(std::span<const TokenId> tokens, std::span<const BlockId> blocks, uint64_t tenant,
                         double keep_seconds, std::span<const float> importance) {
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  const double keep_until = keep_seconds > 0 ? now() + keep_seconds : 0;
  PrefixKey above = root_key(tenant, identity_);
  Node parent = PrefixTree::kNone;
  tree_.begin_use(now());
  for (size_t i = 0; (i + 1) * block_tokens <= tokens.size() && i < blocks.size(); ++i) {
    const auto piece = tokens.subspan(i * block_tokens, block_tokens);
    above = next_key(above, piece);
    Node node = find(above, parent, tenant, piece);
    if (node == PrefixTree::kNone) {
      if (nodes_.contains(above)) return;  // a collision: leave the other chain alone
      pool_.share(blocks[i]);
      node = tree_.add(parent, keep_until);
      if (node >= static_cast<Node>(entries_.size())) entries_.resize(static_cast<size_t>(node) + 1);
      entries_[static_cast<size_t>(node)] = {above, tenant, {piece.begin(), piece.end()}, blocks[i]};
      nodes_[above] = node;
    } else {
      tree_.refresh(node);
      tree_.keep(node, keep_until);
    }
    if (i < importance.size()) tree_.weigh(node, static_cast<double>(importance[i]));
    parent = node;
  }
}

void PrefixIndex::erase(Node leaf) {
  Entry& entry = entries_[static_cast<size_t>(leaf)];
  if (leaving_) {
    const Node parent = tree_.parent(leaf);
    const PrefixKey above =
        parent == PrefixTree::kNone ? root_key(entry.tenant, identity_) : entries_[static_cast<size_t>(parent)].key;
    leaving_({entry.key, above, entry.tokens, static_cast<float>(tree_.use_of(leaf).importance)}, entry.block);
  }
  pool_.release(entry.block);
  nodes_.erase(entry.key);
  entry = {};
  tree_.erase(leaf, now());
}

int64_t PrefixIndex::evict(int64_t count) {
  int64_t evicted = 0;
  const double time = now();
  while (evicted < count) {
    Node leaf = tree_.victim(time, [&](Node node) { return !held(node); });
    if (leaf == PrefixTree::kNone) {
      // Blocks before one that a stream holds may be unreferenced if that stream keeps its own copies of them. The held
      // block then leaves the index but stays with the stream.
      if (evictable() == 0) break;
      leaf = tree_.victim(time, [](Node) { return true; });
      erase(leaf);
      continue;
    }
    erase(leaf);
    ++evicted;
  }
  return evicted;
}

int64_t PrefixIndex::evictable() const {
  return std::ranges::count_if(
      entries_, [&](const Entry& entry) { return entry.block >= 0 && pool_.references(entry.block) == 1; });
}

void PrefixIndex::clear() {
  const double time = now();
  for (Node leaf; (leaf = tree_.victim(time, [](Node) { return true; })) != PrefixTree::kNone;) erase(leaf);
}

PrefixStats PrefixIndex::stats() const {
  PrefixStats stats = stats_;
  stats.blocks = tree_.stats();
  return stats;
}

}  // namespace millrace
