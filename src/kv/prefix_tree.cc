#include "kv/prefix_tree.h"

#include <algorithm>

namespace millrace {

void PrefixTree::list(Node node) {
  Entry& entry = nodes_[static_cast<size_t>(node)];
  entry.kept = entry.use.keep_until > now_;
  if (entry.kept)
    kept_.emplace(entry.use.keep_until, node);
  else
    leaves_.emplace(evictor_->rank(entry.use), node);
}

void PrefixTree::unlist(Node node) {
  const Entry& entry = nodes_[static_cast<size_t>(node)];
  if (entry.kept)
    kept_.erase({entry.use.keep_until, node});
  else
    leaves_.erase({evictor_->rank(entry.use), node});
}

void PrefixTree::release_expired(double now_seconds) {
  now_ = std::max(now_, now_seconds);
  while (!kept_.empty() && kept_.begin()->first <= now_) {
    const Node node = kept_.begin()->second;
    unlist(node);
    list(node);
  }
}

PrefixTree::Node PrefixTree::add(Node parent, double keep_until) {
  Node node = static_cast<Node>(nodes_.size());
  if (unused_.empty())
    nodes_.emplace_back();
  else
    node = unused_.back(), unused_.pop_back();
  Entry entry;
  entry.parent = parent;
  entry.use.uses = 1;
  entry.use.last_use = tick_;
  entry.use.stored_seconds = entry.use.last_seconds = now_;
  entry.use.keep_until = keep_until;
  if (parent != kNone) {
    if (nodes_[static_cast<size_t>(parent)].children++ == 0) unlist(parent);
    entry.use.depth = use_of(parent).depth + 1;
  }
  nodes_[static_cast<size_t>(node)] = entry;
  list(node);
  ++size_;
  ++stats_.stored;
  return node;
}

void PrefixTree::touch(Node node, int64_t uses) {
  Entry& entry = nodes_[static_cast<size_t>(node)];
  const bool leaf = entry.children == 0;
  if (leaf) unlist(node);
  entry.use.uses += uses;
  entry.use.last_use = tick_;
  entry.use.last_seconds = now_;
  if (leaf) list(node);
}

void PrefixTree::use(Node node) {
  stats_.reuse_gap.add(now_ - use_of(node).last_seconds);
  touch(node, 1);
}

void PrefixTree::refresh(Node node) { touch(node, 0); }

void PrefixTree::keep(Node node, double until) {
  Entry& entry = nodes_[static_cast<size_t>(node)];
  if (until <= entry.use.keep_until) return;
  const bool leaf = entry.children == 0;
  if (leaf) unlist(node);
  entry.use.keep_until = until;
  if (leaf) list(node);
}

void PrefixTree::weigh(Node node, double importance) {
  Entry& entry = nodes_[static_cast<size_t>(node)];
  if (!(importance > entry.use.importance)) return;
  const bool leaf = entry.children == 0;
  if (leaf) unlist(node);
  entry.use.importance = importance;
  if (leaf) list(node);
}

void PrefixTree::erase(Node leaf, double now_seconds) {
  now_ = std::max(now_, now_seconds);
  unlist(leaf);
  const Entry& entry = nodes_[static_cast<size_t>(leaf)];
  stats_.lifetime.add(now_ - entry.use.stored_seconds);
  stats_.idle.add(now_ - entry.use.last_seconds);
  ++stats_.erased;
  if (entry.parent != kNone && --nodes_[static_cast<size_t>(entry.parent)].children == 0) list(entry.parent);
  unused_.push_back(leaf);
  --size_;
}

}  // namespace millrace
