// Nfa: the non-deterministic automaton of one expression, from which its Dfa is built.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"

namespace millrace {

struct NfaEdge {
  enum class Kind : uint8_t { empty, bytes, call, begin, end };
  Kind kind = Kind::empty;
  uint8_t first = 0, last = 0;  // bytes
  int32_t call = -1;            // index into Nfa::calls
  int32_t to = -1;
  int32_t sibling = -1;  // next edge of the same state
};

// Consecutive copies of a repeated part. States [base, base + size) are the first copy, the next `size` states the
// second copy, and so on. If all copies are optional, {0,n}, a state accepts every text that the corresponding state of
// a later copy accepts: the earlier copy dominates. Without an upper bound ({n,}, `open`), the later copy dominates. A
// set of states needs only the dominating copy, so its size does not grow with n.
struct NfaCopies {
  int32_t base = 0, size = 0;
  int32_t parent = -1;  // index of the enclosing copies; -1: none
  int16_t level = 0;    // number of enclosing copies
  bool open = false;
};

struct Nfa {
  struct State {
    int32_t edge = -1;
    int32_t copies = -1;  // index of the innermost copies that contain the state; -1: none
    bool tick = false;
  };
  std::vector<State> states;
  std::vector<NfaEdge> edges;
  std::vector<Dfa::Call> calls;
  std::vector<NfaCopies> copies;
  int32_t start = 0, accept = 0;
  int32_t levels = 0;  // levels of nested copies
  BudgetShare share;

  int32_t add_state() {
    states.push_back({});
    return static_cast<int32_t>(states.size()) - 1;
  }
  // Returns the bytes of heap memory, times 1.5 because a growing vector briefly holds its old buffer as well.
  int64_t bytes() const {
    return static_cast<int64_t>((states.capacity() * sizeof(State) + edges.capacity() * sizeof(NfaEdge) +
                                 calls.capacity() * sizeof(Dfa::Call) + copies.capacity() * sizeof(NfaCopies)) *
                                3 / 2);
  }
  void add_edge(int32_t from, NfaEdge edge) {
    edge.sibling = states[static_cast<size_t>(from)].edge;
    states[static_cast<size_t>(from)].edge = static_cast<int32_t>(edges.size());
    edges.push_back(edge);
  }
  void add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to) {
    add_edge(from, {NfaEdge::Kind::bytes, first, last, -1, to, -1});
  }
  void add_empty(int32_t from, int32_t to) { add_edge(from, {NfaEdge::Kind::empty, 0, 0, -1, to, -1}); }
};

Result<Nfa> make_nfa(const GrammarSpec& spec, ExprId expr, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
