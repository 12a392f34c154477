// GrammarSpec: the intermediate form of all kinds of constraints, from which automata are built. It is a list of rules.
// The body of a rule is an expression, which produces bytes or calls rules.
//
//   JSON Schema, regex,                    one Dfa per rule        Grammar (grammar.h):
//   GBNF, choice     --> GrammarSpec ----> (dfa.h) --------------> rules that call each other
//
// Counted calls: a rule may contain ticks, and a call bounds the number of ticks from below (`need`) and above
// (`room`). Length bounds of a string or an array thus cost no states, and one rule serves all lengths. From each state
// of a counted rule, every number of ticks between the minimum and the maximum is reachable (tick_ranges.h). Accepting
// states of a counted rule have no outgoing edges.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/char_set.h"
#include "text/grammar/compile_budget.h"

namespace millrace {

struct Dfa;
using ExprId = int32_t;
using RuleId = int32_t;

inline constexpr uint32_t kNoLimit = UINT32_MAX;

// How a character of a CharSet is written.
enum class Spelling : uint8_t {
  utf8,  // unescaped
  json,  // as in a JSON string, with one spelling per character: escaped only if JSON requires it
};

struct Expr {
  // clang-format off
  enum class Kind : uint8_t { never, bytes, byte_set, chars, sequence, choice, repeat, list, keyed, call, tick, dfa, begin, end };
  // clang-format on
  Kind kind = Kind::never;
  Spelling spelling = Spelling::utf8;  // chars
  std::string text;  // bytes; byte_set: its members; list, keyed: how often each part occurs, see GrammarSpec::list
  CharSet set;       // chars
  std::vector<ExprId> parts;           // sequence, choice; repeat: one; list: the separator, then the members;
                                       // keyed: separator, opening, the contents, and the other members if any
  std::vector<std::string> keys;       // keyed
  uint32_t min = 0, max = 0;           // repeat; kNoLimit: unbounded; list, keyed: min 1 means not empty
  RuleId rule = -1;                    // call
  uint32_t need = 0, room = kNoLimit;  // call
  std::shared_ptr<const Dfa> dfa;      // dfa
};

// A list whose members begin with different keys, in a fixed order. No key may be a prefix of another key.
struct KeyedMembers {
  struct Member {
    std::string key;
    ExprId content = -1;
    bool required = false;
  };
  ExprId separator = -1;
  ExprId opening = -1;  // before each key
  std::vector<Member> members;
  ExprId others = -1;   // a further member with its opening, any number of times after `members`; -1: none
  bool filled = false;  // the list is not empty
};

class GrammarSpec {
 public:
  // Expressions are charged to `budget` if it is not null. Parsers call check() regularly.
  explicit GrammarSpec(CompileBudget* budget = nullptr) : share_(budget) {}
  Result<void> check() { return share_.check(); }

  ExprId add(Expr expr);
  const Expr& at(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }

  ExprId never() { return add({}); }
  ExprId bytes(std::string_view text);  // "" is the empty text
  ExprId byte_set(std::string members);
  ExprId chars(CharSet set, Spelling spelling);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  // Merges nested repetitions if the result is equivalent: (x{0,3}){5} becomes x{0,15}.
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  // Returns a list of members in this order, separated by `separator`. `counts`: for each member, '1' (exactly once),
  // '?' (at most once) or '*' (any number of times). `filled`: the list has at least one member.
  ExprId list(ExprId separator, const std::vector<ExprId>& members, std::string counts, bool filled = false);
  // Variant for long lists of members that begin with keys. The keys share a prefix tree, so its number of states is
  // proportional to the keys' length; list() needs a number of states quadratic in the number of members.
  ExprId keyed(KeyedMembers list);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId call(RuleId rule, uint32_t need = 0, uint32_t room = kNoLimit);
  ExprId tick() { return marker(Expr::Kind::tick); }
  ExprId begin() { return marker(Expr::Kind::begin); }  // only at the start of the text; for regexes
  ExprId end() { return marker(Expr::Kind::end); }
  ExprId dfa(std::shared_ptr<const Dfa> dfa);

  RuleId add_rule(std::string name) {
    rules_.push_back({std::move(name), -1});
    return static_cast<RuleId>(rules_.size()) - 1;
  }
  void set_body(RuleId rule, ExprId body) { rules_[static_cast<size_t>(rule)].body = body; }

  struct Rule {
    std::string name;
    ExprId body = -1;
  };
  const std::vector<Rule>& rules() const { return rules_; }
  // Inlines non-recursive rules as long as the result stays small, because fewer calls mean fewer simultaneous parses.
  void inline_rules();
  size_t size() const { return exprs_.size(); }
  RuleId root = -1;

 private:
  ExprId marker(Expr::Kind kind) {
    Expr expr;
    expr.kind = kind;
    return add(std::move(expr));
  }
  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
  BudgetShare share_;
  int64_t bytes_ = 0;  // bytes of the lists inside the expressions
};

}  // namespace millrace
