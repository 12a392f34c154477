// PrefixTree: the blocks of a prefix cache as a forest, with each block's usage data and the eviction order. It holds
// no keys, tokens or blocks: the user stores those by node (PrefixIndex), or has only the hashes of a trace.
//
//   [A0]-[A1]-[A2]        leaves A2, A3, B0 may be evicted; A1 after A2 and A3. A path from the root is a prompt that
//           \-[A3]        can be found, so inner nodes are never removed.
//   [B0]
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "kv/prefix_evictor.h"
#include "millrace/age_histogram.h"

namespace millrace {

struct PrefixTreeStats {
  int64_t stored = 0;  // total number of blocks ever stored
  int64_t erased = 0;
  AgeHistogram lifetime;   // time since erased blocks were stored
  AgeHistogram idle;       // time since the last use of erased blocks
  AgeHistogram reuse_gap;  // time between two uses

  void merge(const PrefixTreeStats& other) {
    stored += other.stored, erased += other.erased;
    lifetime.merge(other.lifetime), idle.merge(other.idle), reuse_gap.merge(other.reuse_gap);
  }
};

class PrefixTree {
 public:
  using Node = int32_t;
  static constexpr Node kNone = -1;

  explicit PrefixTree(const PrefixEvictor& evictor) : evictor_(&evictor) {}

  // Begins a lookup or store of a prompt; all uses until the next call count as simultaneous.
  void begin_use(double now_seconds) { ++tick_, now_ = std::max(now_, now_seconds); }
  Node add(Node parent, double keep_until = 0);  // kNone: at the root
  void use(Node node);                           // found by a lookup
  void refresh(Node node);                       // stored again: refreshes recency without counting as a use
  void keep(Node node, double until);            // extends, never shortens
  void weigh(Node node, double importance);      // observed importance; the maximum counts

  // The first leaf in eviction order for which `may_go(node)` is true; kNone if there is none. Leaves with a keep time
  // come last, the longest keep time at the very end.
  template <typename MayGo>
  Node victim(double now_seconds, MayGo&& may_go) {
    release_expired(now_seconds);
    for (const auto& [rank, node] : leaves_)
      if (may_go(node)) return node;
    for (const auto& [until, node] : kept_)
      if (may_go(node)) return node;
    return kNone;
  }
  void erase(Node leaf, double now_seconds);

  int64_t size() const { return size_; }
  Node parent(Node node) const { return nodes_[static_cast<size_t>(node)].parent; }
  int64_t children(Node node) const { return nodes_[static_cast<size_t>(node)].children; }
  const PrefixUse& use_of(Node node) const { return nodes_[static_cast<size_t>(node)].use; }
  Node slots() const { return static_cast<Node>(nodes_.size()); }  // nodes are [0, slots()), some of them unused
  const PrefixTreeStats& stats() const { return stats_; }

 private:
  struct Entry {
    PrefixUse use;
    Node parent = kNone;
    int32_t children = 0;
    bool kept = false;  // listed in kept_ when it is a leaf
  };
  void touch(Node node, int64_t uses);
  void list(Node node);  // inserts a leaf into leaves_ or kept_
  void unlist(Node node);
  void release_expired(double now_seconds);

  const PrefixEvictor* evictor_;
  std::vector<Entry> nodes_;
  std::vector<Node> unused_;
  std::set<std::pair<EvictRank, Node>> leaves_;
  std::set<std::pair<double, Node>> kept_;  // by keep_until
  int64_t size_ = 0;
  int64_t tick_ = 0;
  double now_ = 0;
  PrefixTreeStats stats_;
};

}  // namespace millrace
