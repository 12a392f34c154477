// TokenMasks: the tokens that a grammar state allows, computed once per state and cached (XGrammar: Dong et al., 2024,
// arXiv 2411.15100). For nearly every token, the state alone decides. Tokens that continue after the end of the state's
// rule (an "exit") depend on the caller of the rule. They are checked from the exit on, when the mask is used.
//
//   state inside a string:   abc    allowed                       bits
//                            ab"    closes it                     bits, an exit token
//                            ",     closes it and continues       an exit: trie node of `"`, walked with the caller
//
// The ticks of a rule (see expr.h) are counted on a floor (see parse_table.h). If a token has t ticks, and a to b
// further ticks are possible after it, the token is allowed if some number from t + a to t + b is within the bounds of
// the call. One StateMask thus serves all lengths.
//
// States of equal rules share a mask, also across grammars. The bytes of the cache are limited; the least recently used
// masks are evicted. Thread-safe.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/parse_table.h"
#include "text/grammar/token_trie.h"

namespace millrace {

struct StateMask {
  struct Exit {
    uint32_t node = 0;  // node of the trie at which the rule may end; it has children
    uint8_t ticks = 0;  // ticks up to this node, in a counted rule
  };
  struct Least {  // a token that needs room for `ticks` ticks
    TokenId token = 0;
    uint32_t ticks = 0;
  };
  struct Counted {  // a token and one parse of it: the rule can end with `least` to `most` ticks in total
    TokenId token = 0;
    uint32_t least = 0, most = 0;
  };
  // Tokens that are allowed if `need` is 0 and `room` is at least most_ticks. Few tokens are stored in `list`, many in
  // `bits`.
  std::vector<uint64_t> bits;
  std::vector<TokenId> list;
  // In a counted rule, the tokens that depend on the call's need and room; each is in one of the two lists.
  std::vector<Least> counted_open;    // tokens that depend only on room; most ticks first
  std::vector<Counted> counted_some;  // the parses of a token are consecutive; one of them has to fit
  std::vector<Exit> exits;
  uint32_t most_ticks = 0;
  ParseBound exceeded = ParseBound::none;  // if set, there is no mask; walk the vocabulary with the set instead
  int64_t work = 0;                        // work of computing the mask, in units of ParseTable

  size_t bytes() const {
    return sizeof(*this) + bits.size() * 8 + list.size() * sizeof(TokenId) + counted_open.size() * sizeof(Least) +
           counted_some.size() * sizeof(Counted) + exits.size() * sizeof(Exit);
  }
};

class StateMaskWork;  // a mask that is being computed

class TokenMasks {
 public:
  explicit TokenMasks(std::vector<std::string> pieces, size_t limit_bytes = size_t{64} << 20);

  const TokenTrie& trie() const { return trie_; }
  int64_t new_grammar() {
    std::lock_guard lock(mutex_);
    return ++grammars_;
  }
  // Returns the mask of one state. `grammar_id`: identifies the grammar for masks that cannot be shared.
  std::shared_ptr<const StateMask> find(const std::shared_ptr<const Grammar>& grammar, int64_t grammar_id,
                                        int32_t state);
  // Variant that does at most about `units` of work and subtracts the work done from `units`. Returns null if the mask
  // is not complete; the next call with the same `work` continues the computation.
  std::shared_ptr<const StateMask> find(const std::shared_ptr<const Grammar>& grammar, int64_t grammar_id,
                                        int32_t state, std::shared_ptr<StateMaskWork>& work, int64_t& units);

  size_t bytes() const;
  int64_t computed() const;  // number of masks computed so far

 private:
  struct Entry {
    std::shared_ptr<const StateMask> mask;
    std::list<uint64_t>::iterator use;
  };
  uint64_t key_of(const Grammar& grammar, int64_t grammar_id, int32_t state);

  TokenTrie trie_;
  size_t limit_bytes_;
  mutable std::mutex mutex_;
  int64_t grammars_ = 0;
  int64_t computed_ = 0;
  size_t bytes_ = 0;
  std::unordered_map<std::string, int64_t> rules_;  // fingerprint -> its own grammar id
  std::unordered_map<uint64_t, Entry> entries_;     // grammar id, state
  std::list<uint64_t> uses_;                        // most recently used first
};

// A walk over nodes [first, last) of the trie. It pauses when its table pauses.
struct TrieWalk {
  uint32_t at = 0, last = 0;
  int64_t visited = 0;
  std::array<SetId, TokenTrie::kMaxTokenBytes + 1> sets{};  // by depth

  TrieWalk() = default;
  // `from`: the set at the parent of `first`.
  TrieWalk(const TokenTrie& trie, uint32_t first, uint32_t end, SetId from) : at(first), last(end) {
    if (first < end) sets[trie.nodes()[first].depth - 1u] = from;
  }
};

// Calls visit(node, set) once for every node of the walk that the table can reach. Stops early if a bound of the table
// is hit; see ParseTable::exceeded(). Returns false if the table has paused; call it again with a new slice. Cached
// steps also use the slice, and are charged when the walk is over.
template <typename Visit>
bool run_walk(const TokenTrie& trie, ParseTable& table, TrieWalk& walk, Visit visit) {
  constexpr int64_t kPart = 1024;
  const auto nodes = trie.nodes();
  for (; walk.at < walk.last; ++walk.visited) {
    if (walk.visited % kPart == kPart - 1) {
      if (table.paused()) return false;
      table.use_slice(kPart);
    }
    const TokenTrie::Node& node = nodes[walk.at];
    const SetId set = table.step(walk.sets[node.depth - 1u], node.byte);
    if (set == kDead) {
      if (table.exceeded() != ParseBound::none) break;
      if (table.paused()) return false;
      walk.at = node.end;
      continue;
    }
    walk.sets[node.depth] = set;
    visit(walk.at, set);
    ++walk.at;
  }
  table.charge(walk.visited);
  table.use_slice(walk.visited % kPart);
  return true;
}

}  // namespace millrace
