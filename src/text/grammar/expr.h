// GrammarSpec: the one form that every kind of constraint is translated to before it becomes automata. Rules over
// expressions; an expression writes bytes or calls rules.
//
//   JSON Schema, regex,                    one Dfa per rule        Grammar (grammar.h):
//   GBNF, choice     --> GrammarSpec ----> (dfa.h) --------------> rules that call each other
//
// Counted calls: a rule may hold ticks, and a call says how many of them there must be at least (`need`) and may be at
// most (`room`). So the length of a string or of an array costs no states, and one rule serves all lengths. From
// each place of a counted rule every number of ticks between the fewest and the most can still come (tick_ranges.h),
// and it ends in states that nothing leaves.
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
  utf8,  // as it is
  json,  // inside a JSON string, one way each: as it is, or escaped where JSON asks for that
};

struct Expr {
  // clang-format off
  enum class Kind : uint8_t { never, bytes, byte_set, chars, sequence, choice, repeat, list, keyed, call, tick, dfa, begin, end };
  // clang-format on
  Kind kind = Kind::never;
  Spelling spelling = Spelling::utf8;  // chars
  std::string text;  // bytes; byte_set: its members; list, keyed: how often each part comes, see GrammarSpec::list
  CharSet set;       // chars
  std::vector<ExprId> parts;      // sequence, choice; repeat: one; list: the separator, then the members;
                                  // keyed: separator, opening, the contents, and the other members where there are any
  std::vector<std::string> keys;  // keyed
  uint32_t min = 0, max = 0;      // repeat; kNoLimit: no end; list, keyed: min 1 is one that is not empty
  RuleId rule = -1;               // call
  uint32_t need = 0, room = kNoLimit;  // call
  std::shared_ptr<const Dfa> dfa;      // dfa
};

// Members of a list that each begin with a key of their own, in order. No key is the begin of another.
struct KeyedMembers {
  struct Member {
    std::string key;
    ExprId content = -1;
    bool required = false;
  };
  ExprId separator = -1;
  ExprId opening = -1;  // before each key
  std::vector<Member> members;
  ExprId others = -1;   // more members behind them, as often as they like; with their opening. -1: none
  bool filled = false;  // at least one
};

class GrammarSpec {
 public:
  // What its expressions take is taken from the budget, where there is one. A parser asks check() as it goes on.
  explicit GrammarSpec(CompileBudget* budget = nullptr) : share_(budget) {}
  Result<void> check() { return share_.check(); }

  ExprId add(Expr expr);
  const Expr& at(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }

  ExprId never() { return add({}); }
  ExprId bytes(std::string_view text);  // "" writes nothing
  ExprId byte_set(std::string members);
  ExprId chars(CharSet set, Spelling spelling);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  // A repetition of a repetition is written as one where that says the same: (x{0,3}){5} as x{0,15}.
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  // Members in this order with a separator between those that come: each once ('1'), at most once ('?') or often ('*').
  // `filled`: at least one of them.
  ExprId list(ExprId separator, const std::vector<ExprId>& members, std::string counts, bool filled = false);
  // The same for members that begin with keys, which many of them share a tree of: no two members are told apart before
  // their keys differ. For lists of many members; a list without keys would need states in the square of their number.
  ExprId keyed(KeyedMembers list);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId call(RuleId rule, uint32_t need = 0, uint32_t room = kNoLimit);
  ExprId tick() { return marker(Expr::Kind::tick); }
  ExprId begin() { return marker(Expr::Kind::begin); }  // only at the text's begin; regexes
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
  // Writes rules that do not call themselves out where they are called, as long as that stays small: fewer calls, fewer
  // ways to keep at once.
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
  int64_t bytes_ = 0;  // of the exprs' own lists
};

}  // namespace millrace
