// Grammar: a pushdown automaton. Its rules are deterministic byte automata that call each other, with globally numbered
// states. Immutable; shared by all streams that it constrains. A ParseTable runs it.
//
//   rule "object"   {0} --"--> {1} ... {7} --call value--> {8} --,--> ...      states base + 0, base + 1, ...
//   rule "value"    {0} --{--> {1} --call object--> {2}
//
// No state is a dead end: from each state, the end of its rule is reachable. In a counted rule, the end is reachable
// with exactly the numbers of ticks in the state's range (see tick_ranges.h). Calls that require a number of ticks that
// their rule cannot produce are removed. There is no left recursion, so the closure over calls without a byte is
// finite.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"
#include "text/grammar/tick_ranges.h"

namespace millrace {

class Grammar {
 public:
  // Errors: user (left recursion; no text satisfies the grammar), unsupported (too large).
  static Result<Grammar> create(const GrammarSpec& spec, const GrammarLimits& limits = {});

  struct Call {
    int32_t start = 0;  // first state of the called rule
    int32_t to = 0;     // state after the call
    uint32_t need = 0, room = kNoLimit;
    bool nullable = false;  // the called rule accepts the empty text
    bool counts = false;    // the called rule has ticks
  };

  int32_t states() const { return static_cast<int32_t>(flags_.size()); }
  int32_t start() const { return start_; }

  int32_t step(int32_t state, uint8_t byte) const {
    const RuleTable& rule = rules_[rule_of_[static_cast<size_t>(state)]];
    const int32_t to = rule.dfa.step(state - rule.base, byte);
    return to < 0 ? -1 : to + rule.base;
  }
  bool accepting(int32_t state) const { return flags_[static_cast<size_t>(state)] & kAccepting; }
  bool ticks(int32_t state) const { return flags_[static_cast<size_t>(state)] & kTicks; }
  bool ends(int32_t state) const {
    return flags_[static_cast<size_t>(state)] & kEnds;
  }  // accepting, without outgoing edges
  bool moves(int32_t state) const { return flags_[static_cast<size_t>(state)] & kMoves; }      // has byte edges
  bool counted(int32_t state) const { return flags_[static_cast<size_t>(state)] & kCounted; }  // its rule has ticks
  // Returns the possible numbers of ticks from the state to the end of its rule.
  TickRange ticks_left(int32_t state) const {
    const RuleTable& rule = rules_[rule_of_[static_cast<size_t>(state)]];
    return rule.counted ? rule.ranges[static_cast<size_t>(state - rule.base)] : TickRange{0, 0};
  }
  std::span<const Call> calls(int32_t state) const {
    const auto s = static_cast<size_t>(state);
    return std::span(calls_).subspan(static_cast<size_t>(first_call_[s]),
                                     static_cast<size_t>(first_call_[s + 1] - first_call_[s]));
  }

  // Bytes of one class have the same transitions in every rule.
  int32_t classes() const { return classes_; }
  uint8_t class_of(uint8_t byte) const { return class_of_[byte]; }
  uint8_t sample(int32_t byte_class) const { return samples_[static_cast<size_t>(byte_class)]; }  // lowest byte of it
  bool single(int32_t byte_class) const { return single_[static_cast<size_t>(byte_class)]; }      // contains one byte

  // Returns a fingerprint of the state's rule. Rules with equal fingerprints accept the same texts. Empty for rules
  // that call other rules or are large.
  const std::string& fingerprint(int32_t state) const {
    return rules_[rule_of_[static_cast<size_t>(state)]].fingerprint;
  }
  int32_t state_in_rule(int32_t state) const { return state - rules_[rule_of_[static_cast<size_t>(state)]].base; }

  size_t bytes() const { return bytes_; }
  GrammarNotes notes;

 private:
  static constexpr uint8_t kAccepting = 1, kTicks = 2, kEnds = 4, kCounted = 8, kMoves = 16;
  struct RuleTable {
    Dfa dfa;
    int32_t base = 0;
    bool used = false, nullable = false, counted = false;
    std::string fingerprint;
    std::vector<TickRange> ranges;  // [state] of a counted rule
  };
  Result<void> keep_productive(const GrammarSpec& spec, CompileBudget* budget);
  Result<void> check_left_recursion(const GrammarSpec& spec) const;
  void find_used(RuleId root);
  void set_classes();
  void number_states(RuleId root);

  std::vector<RuleTable> rules_;
  std::vector<uint32_t> rule_of_;    // [state]
  std::vector<uint8_t> flags_;       // [state]
  std::vector<int32_t> first_call_;  // [state + 1]
  std::vector<Call> calls_;
  std::array<uint8_t, 256> class_of_{};
  std::vector<uint8_t> samples_, single_;
  int32_t classes_ = 1;
  int32_t start_ = 0;
  size_t bytes_ = 0;
};

}  // namespace millrace
