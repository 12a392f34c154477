// GrammarSpec: the one form that every kind of constraint is translated to before it becomes automata. Rules over
// expressions; an expression writes bytes or calls rules.
//
//   JSON Schema, regex,                    one Dfa per rule        Grammar (grammar.h):
//   GBNF, choice     --> GrammarSpec ----> (dfa.h) --------------> rules that call each other
//
// Counted calls: a rule may hold ticks, and a call says how many of them there must be at least (`need`) and may be at
// most (`room`). So the length of a string or of an array costs no states, and one rule serves all lengths. A counted
// rule ends in states that nothing leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/char_set.h"

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
  enum class Kind : uint8_t { never, bytes, byte_set, chars, sequence, choice, repeat, list, call, tick, dfa, begin, end };
  Kind kind = Kind::never;
  Spelling spelling = Spelling::utf8;  // chars
  std::string text;                    // bytes; byte_set: its members; list: how often each part comes, see GrammarSpec::list
  CharSet set;                         // chars
  std::vector<ExprId> parts;           // sequence, choice; repeat: one; list: the separator, then the members
  uint32_t min = 0, max = 0;           // repeat; kNoLimit: no end; list: min 1 is one that is not empty
  RuleId rule = -1;                    // call
  uint32_t need = 0, room = kNoLimit;  // call
  std::shared_ptr<const Dfa> dfa;      // dfa
};

class GrammarSpec {
 public:
  ExprId add(Expr expr) {
    exprs_.push_back(std::move(expr));
    return static_cast<ExprId>(exprs_.size()) - 1;
  }
  const Expr& at(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }

  ExprId never() { return add({}); }
  ExprId bytes(std::string_view text);  // "" writes nothing
  ExprId byte_set(std::string members);
  ExprId chars(CharSet set, Spelling spelling);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId choice(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  // Members in this order with a separator between those that come: each once ('1'), at most once ('?') or often ('*').
  // `filled`: at least one of them.
  ExprId list(ExprId separator, const std::vector<ExprId>& members, std::string counts, bool filled = false);
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
};

}  // namespace millrace
