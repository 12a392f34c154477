// Nfa: the non-deterministic automaton of one expression, a step on the way to its Dfa.
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
  int32_t sibling = -1;         // next edge of the same state
};

struct Nfa {
  struct State {
    int32_t edge = -1;
    bool tick = false;
  };
  std::vector<State> states;
  std::vector<NfaEdge> edges;
  std::vector<Dfa::Call> calls;
  int32_t start = 0, accept = 0;

  int32_t add_state() {
    states.push_back({});
    return static_cast<int32_t>(states.size()) - 1;
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
