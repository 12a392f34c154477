#include "kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "kv/window_groups.h"

namespace millrace {

using Node = PrefixTree::Node;

PrefixIndex::PrefixIndex(KvPool& pool, const PrefixIndexOptions& options)
    : pool_(pool),
      identity_(options.identity),
      clock_(options.clock),
      leaving_(options.leaving),
      tree_(options.evictor ? *options.evictor : *prefix_evictors().members().front()),
      states_(pool.states(), options.states, tree_,
              options.state_leaving ? std::function<void(Node, StateId)>(
                                          [this, leaving = options.state_leaving](Node node, StateId slot) {
                                            leaving(entries_[static_cast<size_t>(node)].key, slot);
                                          })
                                    : nullptr),
      turn_(static_cast<size_t>(pool.groups() - 1)) {}

Node PrefixIndex::find(const PrefixKey& key, Node parent, uint64_t tenant, std::span<const TokenId> tokens) const {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return PrefixTree::kNone;
  const Entry& entry = entries_[static_cast<size_t>(found->second)];
  if (tree_.parent(found->second) != parent || entry.tenant != tenant || !std::ranges::equal(entry.tokens, tokens))
    return PrefixTree::kNone;
  return found->second;
}

std::vector<Node> PrefixIndex::path_of(std::span<const TokenId> tokens, uint64_t tenant) const {
  std::vector<Node> path;
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  PrefixKey above = root_key(tenant, identity_);
  Node parent = PrefixTree::kNone;
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    const auto piece = tokens.subspan(begin, block_tokens);
    above = next_key(above, piece);
    ++hashed_;
    parent = find(above, parent, tenant, piece);
    if (parent == PrefixTree::kNone) break;
    path.push_back(parent);
  }
  return path;
}

// Blocks of the longest part of the path that can continue a stream. If a prefix lacks a block of its window, so does
// every shorter one that ends after that block: the next to try ends before it.
int64_t PrefixIndex::usable(std::span<const Node> path) const {
  if (states_.needed()) return states_.usable(path);
  const int64_t block_tokens = pool_.layout().block_tokens;
  auto length = std::ssize(path);
  for (bool shorter = true; std::exchange(shorter, false);) {
    for (int64_t g = 1; g < pool_.groups(); ++g) {
      const int64_t first = dead_blocks(length * block_tokens, pool_.group(g).layout().window, block_tokens);
      for (int64_t i = length - 1; i >= first; --i) {
        if (entries_[static_cast<size_t>(path[static_cast<size_t>(i)])].windows[static_cast<size_t>(g - 1)] >= 0)
          continue;
        length = i;
        shorter = true;
        break;
      }
    }
  }
  return length;
}

PrefixMatch PrefixIndex::match_groups(std::span<const TokenId> tokens, uint64_t tenant) {
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  tree_.begin_use(now());
  std::vector<Node> path = path_of(tokens, tenant);
  path.resize(static_cast<size_t>(usable(path)));
  PrefixMatch match;
  for (const Node node : path) {
    pool_.share(entries_[static_cast<size_t>(node)].block);
    match.blocks.push_back(entries_[static_cast<size_t>(node)].block);
    tree_.use(node);
  }
  if (states_.needed() && !path.empty()) {
    match.state = states_.at(path.back());
    states_.hit(path.back());
  }
  for (int64_t g = 1; g < pool_.groups(); ++g) {
    KvPool& group = pool_.group(g);
    const auto bt = static_cast<int64_t>(block_tokens);
    PrefixMatch::Window window{{}, dead_blocks(std::ssize(path) * bt, group.layout().window, bt)};
    window.blocks.assign(static_cast<size_t>(window.dead), 0);
    for (auto i = static_cast<size_t>(window.dead); i < path.size(); ++i) {
      Entry& entry = entries_[static_cast<size_t>(path[i])];
      window.blocks.push_back(entry.windows[static_cast<size_t>(g - 1)]);
      group.share(window.blocks.back());
      entry.found = true;
    }
    match.windows.push_back(std::move(window));
  }
  ++stats_.queries;
  stats_.query_tokens += static_cast<int64_t>(tokens.size());
  stats_.hit_tokens += static_cast<int64_t>(path.size() * block_tokens);
  return match;
}

int64_t PrefixIndex::known_blocks(std::span<const TokenId> tokens, uint64_t tenant) const {
  const std::vector<Node> path = path_of(tokens, tenant);
  return states_.needed() ? states_.usable(path) : std::ssize(path);
}

bool PrefixIndex::store_state(std::span<const TokenId> tokens, uint64_t tenant, std::span<const float> state) {
  const std::vector<Node> path = path_of(tokens, tenant);
  const int64_t stored = std::ssize(path) * pool_.layout().block_tokens;
  return stored > 0 && stored == std::ssize(tokens) && states_.store(path, stored, state);
}

bool PrefixIndex::store_state_behind(std::span<const Node> path, std::span<const float> state) {
  return !path.empty() && states_.store(path, std::ssize(path) * pool_.layout().block_tokens, state);
}

void PrefixIndex::adopt_state(std::span<const TokenId> tokens, uint64_t tenant, StateId slot) {
  const std::vector<Node> path = path_of(tokens, tenant);
  const int64_t stored = std::ssize(path) * pool_.layout().block_tokens;
  if (stored > 0 && stored == std::ssize(tokens))
    states_.adopt(path, stored, slot);
  else
    states_.take_back(slot);
}

std::vector<BlockId> PrefixIndex::share(std::span<const TokenId> tokens, uint64_t tenant, int64_t first, int64_t end) {
  const std::vector<Node> path = path_of(tokens, tenant);
  assert(end <= std::ssize(path));
  std::vector<BlockId> blocks;
  for (int64_t i = first; i < end; ++i) {
    blocks.push_back(entries_[static_cast<size_t>(path[static_cast<size_t>(i)])].block);
    pool_.share(blocks.back());
  }
  return blocks;
}

void PrefixIndex::add_windows(Node node, size_t index, std::span<const PrefixBlocks> groups) {
  std::vector<BlockId>& windows = entries_[static_cast<size_t>(node)].windows;
  for (size_t g = 1; g < groups.size(); ++g) {
    const bool held = index >= static_cast<size_t>(groups[g].dead) && index < groups[g].blocks.size();
    if (!held || windows[g - 1] >= 0) continue;
    windows[g - 1] = groups[g].blocks[index];
    pool_.group(static_cast<int64_t>(g)).share(windows[g - 1]);
  }
}

std::vector<Node> PrefixIndex::insert_groups(std::span<const TokenId> tokens, std::span<const PrefixBlocks> groups,
                                             uint64_t tenant, double keep_seconds, std::span<const float> importance) {
  std::vector<Node> path;
  const std::span<const BlockId> blocks = groups.front().blocks;
  const size_t block_tokens = static_cast<size_t>(pool_.layout().block_tokens);
  const double keep_until = keep_seconds > 0 ? now() + keep_seconds : 0;
  PrefixKey above = root_key(tenant, identity_);
  Node parent = PrefixTree::kNone;
  tree_.begin_use(now());
  for (size_t i = 0; (i + 1) * block_tokens <= tokens.size() && i < blocks.size(); ++i) {
    const auto piece = tokens.subspan(i * block_tokens, block_tokens);
    above = next_key(above, piece);
    ++hashed_;
    Node node = find(above, parent, tenant, piece);
    if (node == PrefixTree::kNone) {
      if (nodes_.contains(above)) break;  // a collision: leave the other chain alone
      if (i < static_cast<size_t>(groups.front().dead)) break;
      pool_.share(blocks[i]);
      node = tree_.add(parent, keep_until);
      if (node >= static_cast<Node>(entries_.size())) entries_.resize(static_cast<size_t>(node) + 1);
      entries_[static_cast<size_t>(node)] = {
          above, tenant, {piece.begin(), piece.end()}, blocks[i], std::vector<BlockId>(turn_.size(), -1)};
      nodes_[above] = node;
    } else {
      tree_.refresh(node);
      tree_.keep(node, keep_until);
    }
    add_windows(node, i, groups);
    if (i < importance.size()) tree_.weigh(node, static_cast<double>(importance[i]));
    parent = node;
    path.push_back(node);
  }
  return path;
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
  for (size_t g = 0; g < entry.windows.size(); ++g)
    if (entry.windows[g] >= 0) pool_.group(static_cast<int64_t>(g) + 1).release(entry.windows[g]);
  states_.erase(leaf);
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

bool PrefixIndex::evict_window(int64_t group) {
  const auto g = static_cast<size_t>(group - 1);
  KvPool& pool = pool_.group(group);
  for (size_t passed = 0; passed < 2 * entries_.size(); ++passed) {
    Entry& entry = entries_[turn_[g]++ % entries_.size()];
    if (entry.block < 0 || entry.windows[g] < 0 || pool.references(entry.windows[g]) > 1) continue;
    if (std::exchange(entry.found, false)) continue;
    pool.release(std::exchange(entry.windows[g], -1));
    return true;
  }
  return false;
}

int64_t PrefixIndex::window_size(int64_t group) const {
  return std::ranges::count_if(entries_, [&](const Entry& entry) {
    return entry.block >= 0 && entry.windows[static_cast<size_t>(group - 1)] >= 0;
  });
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
  stats.hashed = hashed_;
  return stats;
}

}  // namespace millrace
