// PrefixStates: copies of recurrent states behind blocks of the prefix index. A block alone cannot continue a stream of
// a model with recurrent layers: the stream also needs the state behind the block's last token. A copy belongs to the
// node of its block and is dropped with it. Dropping a copy alone leaves the block, for longer prefixes. Not
// thread-safe.
//
//   [A0]-[A1]-[A2*]-[A3]-[A4*]      *: has a copy. A prompt that begins with A0 ... A3 continues from A2
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kv/prefix_tree.h"
#include "kv/state_evictor.h"
#include "kv/state_pool.h"

namespace millrace {

struct PrefixStateStats {
  int64_t stored = 0;    // copies ever stored
  int64_t replaced = 0;  // dropped because their stream stored a later one
  int64_t evicted = 0;   // dropped for another copy, or with the block before them
  int64_t hits = 0;
  int64_t walked = 0;  // nodes that were visited to find the copies below new ones; for tests
};

// The values of one slot, of all layers.
inline std::span<float> slot_values(StatePool& pool, StateId slot) {
  return {pool.values(0, slot), static_cast<size_t>(pool.slot_bytes()) / sizeof(float)};
}

class PrefixStates {
 public:
  using Node = PrefixTree::Node;
  static constexpr StateId kNone = -1;

  // All outlive this object. `evictor`: null if blocks alone continue a stream. `leaving` is called with each copy that
  // is evicted, while its slot still has its values; may be empty.
  PrefixStates(StatePool& pool, const StateEvictor* evictor, const PrefixTree& tree,
               std::function<void(Node, StateId)> leaving = {})
      : pool_(pool), evictor_(evictor), tree_(tree), leaving_(std::move(leaving)) {}

  bool needed() const { return evictor_ != nullptr; }
  StateId at(Node node) const;  // kNone: the node has no copy
  // Number of the path's nodes up to the last one with a copy.
  int64_t usable(std::span<const Node> path) const;
  // Stores a copy of `state` (slot_values(), or that of a file) behind the last block of `path`, which ends after
  // `tokens` tokens. If the slots are all taken, one copy is evicted. A copy that is there already counts as used.
  // Returns false if there are no slots.
  bool store(std::span<const Node> path, int64_t tokens, std::span<const float> state);
  // Variant for a slot that was lent and holds the state: it becomes the copy, or is taken back if there is one.
  void adopt(std::span<const Node> path, int64_t tokens, StateId slot);
  void hit(Node node);      // a prompt continues from the node's copy
  void replace(Node node);  // its stream has stored a later copy: drops this one if only that stream has used it
  void erase(Node node);    // the node leaves the index
  // Copies a state to a slot that the caller holds until take_back(), for a point that is no multiple of the stride. If
  // the slots are all taken, one copy is evicted. Returns kNone if there are no slots.
  StateId lend(std::span<const float> state);
  StateId lend();  // variant that leaves the slot's values to the caller
  void take_back(StateId slot);

  int64_t size() const { return static_cast<int64_t>(copies_.size()); }
  int64_t held() const { return size() + lent_; }       // slots in use
  void add_slots(std::vector<int32_t>& holders) const;  // counts each copy's slot, without those that are lent
  const PrefixStateStats& stats() const { return stats_; }

 private:
  struct Copy {
    Node node = PrefixTree::kNone;
    StateId slot = kNone;
    Node above = PrefixTree::kNone;  // nearest node before it with a copy
    StateUse use;
  };
  int64_t index_of(Node node) const;
  bool use_again(Node node);  // counts as a use of the node's copy; returns false if it has none
  void add(std::span<const Node> path, int64_t tokens, StateId slot);
  void put_above(const Copy& copy);
  void evict(size_t index);
  void drop(size_t index);
  size_t choose_victim();
  StateId take_slot();

  StatePool& pool_;
  const StateEvictor* evictor_;
  const PrefixTree& tree_;
  std::function<void(Node, StateId)> leaving_;
  std::vector<Copy> copies_;
  std::vector<int32_t> indices_;  // by node: its copy in copies_; -1: none
  std::vector<StateUse> uses_;    // one for each copy, while a victim is chosen
  // By node, while put_above() runs: its `round_` if the node was visited, negative if it is not below the new copy.
  std::vector<int64_t> visits_;
  std::vector<Node> walk_;
  int64_t round_ = 0;
  int64_t lent_ = 0;
  int64_t clock_ = 0;
  PrefixStateStats stats_;
};

}  // namespace millrace
