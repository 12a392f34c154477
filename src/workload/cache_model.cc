#include "workload/cache_model.h"

#include <algorithm>
#include <unordered_map>

#include "workload/prefix_blocks.h"

namespace millrace {
namespace {

class NodeCache {
 public:
  NodeCache(const PrefixEvictor& evictor, int64_t capacity) : tree_(evictor), capacity_(capacity) {}

  // Number of leading blocks that would be found now.
  size_t match(std::span<const PromptBlock> blocks) const {
    PrefixTree::Node parent = PrefixTree::kNone;
    for (size_t at = 0; at < blocks.size(); ++at) {
      const auto found = nodes_.find(blocks[at].name);
      if (found == nodes_.end() || tree_.parent(found->second) != parent) return at;
      parent = found->second;
    }
    return blocks.size();
  }

  // Looks the prompt up and stores it; adds the hits to `result`.
  void serve(const WorkloadRequest& request, std::span<const PromptBlock> blocks, CacheResult& result) {
    given_ += request.prompt_tokens;
    const double now = request.arrival_seconds;
    result.blocks += static_cast<int64_t>(blocks.size());
    result.tokens += request.prompt_tokens;
    tree_.begin_use(now);
    PrefixTree::Node parent = PrefixTree::kNone;
    size_t at = 0;
    for (; at < blocks.size(); ++at) {
      const auto found = nodes_.find(blocks[at].name);
      if (found == nodes_.end() || tree_.parent(found->second) != parent) break;
      parent = found->second;
      tree_.use(parent);
      ++result.hit_blocks;
      result.hit_tokens += blocks[at].tokens;
    }
    for (; at < blocks.size(); ++at) {
      if (nodes_.contains(blocks[at].name)) return;  // one name under two parents: an inconsistent trace
      if (capacity_ > 0 && tree_.size() >= capacity_ && !make_room(parent, now)) return;
      parent = tree_.add(parent);
      names_.resize(static_cast<size_t>(tree_.slots()));
      names_[static_cast<size_t>(parent)] = blocks[at].name;
      nodes_[blocks[at].name] = parent;
    }
  }

  const PrefixTreeStats& stats() const { return tree_.stats(); }
  int64_t given() const { return given_; }  // prompt tokens so far

 private:
  // The chain being stored ends in the leaf `end`, which must not be evicted.
  bool make_room(PrefixTree::Node end, double now) {
    const auto victim = tree_.victim(now, [&](PrefixTree::Node node) { return node != end; });
    if (victim == PrefixTree::kNone) return false;
    nodes_.erase(names_[static_cast<size_t>(victim)]);
    tree_.erase(victim, now);
    return true;
  }

  PrefixTree tree_;
  int64_t capacity_;
  int64_t given_ = 0;
  std::unordered_map<uint64_t, PrefixTree::Node> nodes_;
  std::vector<uint64_t> names_;  // by node
};

size_t choose_node(std::span<const NodeCache> caches, std::span<const PromptBlock> blocks) {
  size_t best = 0, idlest = 0, found = 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    const size_t match = caches[i].match(blocks);
    if (match > found || (match == found && caches[i].given() < caches[best].given())) best = i, found = match;
    if (caches[i].given() < caches[idlest].given()) idlest = i;
  }
  return found > 0 && 2 * found >= blocks.size() ? best : idlest;
}

}  // namespace

CacheResult run_cache(std::span<const WorkloadRequest> requests, const CacheSpec& spec) {
  CacheResult result;
  std::vector<NodeCache> caches;
  for (int64_t i = 0; i < spec.nodes; ++i) caches.emplace_back(*spec.evictor, spec.capacity_blocks);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto blocks = prompt_blocks(requests[i], spec.token_block);
    const size_t node = spec.route == CacheRoute::prefix ? choose_node(caches, blocks) : i % caches.size();
    caches[node].serve(requests[i], blocks, result);
  }
  int64_t most = 0;
  for (const NodeCache& cache : caches) {
    result.stored.merge(cache.stats());
    most = std::max(most, cache.given());
  }
  if (result.tokens > 0)
    result.load_ratio =
        static_cast<double>(most) * static_cast<double>(spec.nodes) / static_cast<double>(result.tokens);
  return result;
}

}  // namespace millrace
