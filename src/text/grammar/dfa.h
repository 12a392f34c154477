// Dfa: a deterministic automaton over bytes and rule calls, built from an expression by Thompson's construction and
// the subset construction. Calls are symbols like bytes: a state may have byte edges and call edges.
//
// Limits of size count states, so that every machine rejects the same grammars. Memory is charged to the budget of the
// compilation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/grammar/compile_budget.h"
#include "text/grammar/expr.h"

namespace millrace {

struct GrammarLimits {
  int64_t nfa_states = 400'000;    // per rule or pattern
  int64_t dfa_states = 100'000;    // per rule or pattern
  int64_t total_states = 200'000;  // per grammar
  int64_t rules = 20'000;
  int64_t source_bytes = 1 << 20;
  int64_t alternatives = 256;       // alternatives of one schema after anyOf, oneOf etc. are combined
  int64_t depth = 200;              // nesting in the source
  CompileBudget* budget = nullptr;  // budget of the current compilation; null: unlimited
};

struct Dfa {
  struct Call {
    RuleId rule = -1;
    uint32_t need = 0, room = kNoLimit;
    int32_t to = -1;
    bool same_call(const Call& o) const { return rule == o.rule && need == o.need && room == o.room; }
  };

  int32_t classes = 1;  // bytes of one class have the same transitions in every state
  std::array<uint8_t, 256> class_of{};
  std::vector<int32_t> next;             // [state, class]; -1: none
  std::vector<uint8_t> accepting;        // [state]
  std::vector<uint8_t> ticks;            // [state]: 1: entering the state counts one tick (see expr.h)
  std::vector<std::vector<Call>> calls;  // [state]
  int64_t call_bytes = 0;                // allocated by the lists in `calls`
  BudgetShare share;                     // share of the compilation's budget

  // Returns the bytes of heap memory, without this struct.
  int64_t bytes() const;
  int32_t size() const { return static_cast<int32_t>(accepting.size()); }
  int32_t step(int32_t state, uint8_t byte) const {
    return next[static_cast<size_t>(state) * static_cast<size_t>(classes) + class_of[byte]];
  }
  bool accepts(std::string_view text) const;  // only for automata without calls
  bool empty() const;                         // true: accepts no text; only for automata without calls
};

// Errors: unsupported (too many states; `what` names the automaton in the message).
Result<Dfa> make_dfa(const GrammarSpec& spec, ExprId expr, const GrammarLimits& limits, std::string_view what);

// Returns the intersection of `a` and `b` (both), or the difference a - b (first_only). Neither may have calls. Ticks
// are those of `a`. Errors: unsupported (too many states).
enum class DfaProduct { both, first_only };
Result<Dfa> combine(const Dfa& a, const Dfa& b, DfaProduct product, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
