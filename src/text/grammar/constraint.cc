#include "text/grammar/constraint.h"

#include <fmt/format.h>

#include "text/grammar/gbnf.h"
#include "text/grammar/json_rules.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"
#include "text/grammar/structure.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kMostTrigger = 1024;
constexpr size_t kMostChoices = 10'000;

using Kind = Constraint::Kind;

Result<void> set_root(GrammarSpec& spec, const char* name, ExprId body) {
  spec.root = spec.add_rule(name);
  spec.set_body(spec.root, body);
  return {};
}

Result<void> add_constraint(GrammarSpec& spec, const Constraint& constraint, const GrammarLimits& limits, std::vector<std::string>& notes) {
  if (static_cast<int64_t>(constraint.text.size()) > limits.source_bytes) return Error::unsupported(fmt::format("constraint: longer than {} bytes", limits.source_bytes));
  switch (constraint.kind) {
    case Kind::none: return Error::internal("constraint: there is none");
    case Kind::json_object: return set_root(spec, "a JSON object", JsonRules(spec).any_object());
    case Kind::json_schema: return compile_json_schema(spec, constraint.text, limits, notes);
    case Kind::grammar:
      MILLRACE_TRY_VOID(parse_gbnf(spec, constraint.text, limits));
      spec.inline_rules();
      return {};
    case Kind::structure: return compile_structure(spec, constraint.text, limits, notes);
    case Kind::regex: {
      GrammarSpec own(limits.budget);  // an automaton first, since ^ and $ mean something there alone
      MILLRACE_TRY(const ExprId body, parse_pattern(own, constraint.text, Spelling::utf8, limits));
      MILLRACE_TRY(Dfa dfa, make_dfa(own, body, limits, "regex"));
      return set_root(spec, "the regex", spec.dfa(std::make_shared<const Dfa>(std::move(dfa))));
    }
    case Kind::choice: {
      size_t bytes = 0;
      std::vector<ExprId> ways;
      if (constraint.choices.empty()) return Error::user("choice: there is nothing to choose from");
      for (const std::string& choice : constraint.choices) {
        if (choice.empty()) return Error::user("choice: an empty text cannot be chosen");
        bytes += choice.size();
        ways.push_back(spec.bytes(choice));
      }
      if (ways.size() > kMostChoices || static_cast<int64_t>(bytes) > limits.source_bytes) return Error::unsupported(fmt::format("choice: more than {} texts or {} bytes", kMostChoices, limits.source_bytes));
      return set_root(spec, "the choice", spec.choice(std::move(ways)));
    }
  }
  return {};
}

// Whether a stream could begin at all; the rest is seen as it is written.
Result<void> check_begin(const Grammar& grammar) {
  ParseTable table(std::shared_ptr<const Grammar>(std::shared_ptr<void>(), &grammar));
  table.set_work(GrammarMatcher::kFirstWork);
  table.begin();
  if (table.exceeded() == ParseBound::none) return {};
  return Error::unsupported(std::string("grammar: at its beginning ") + parse_bound_reason(table.exceeded()));
}

std::string key_of(const Constraint& c) {
  std::string key = fmt::format("{} {} {} ", static_cast<int>(c.kind), c.text.size(), c.trigger.size()) + c.text + c.trigger;
  for (const std::string& choice : c.choices) key += fmt::format(" {} ", choice.size()) + choice;
  return key;
}

}  // namespace

Result<Grammar> compile_constraint(const Constraint& constraint, const GrammarLimits& limits) {
  if (!limits.budget) {
    CompileBudget budget;
    GrammarLimits own = limits;
    own.budget = &budget;
    return compile_constraint(constraint, own);
  }
  if (constraint.trigger.size() > kMostTrigger) return Error::user(fmt::format("constraint: the trigger is longer than {} bytes", kMostTrigger));
  GrammarSpec spec(limits.budget);
  std::vector<std::string> notes;
  MILLRACE_TRY_VOID(add_constraint(spec, constraint, limits, notes));
  if (!constraint.trigger.empty()) {  // free text until it has come, then the root
    MILLRACE_TRY(const ExprId body, triggered_text(spec, {{constraint.trigger, spec.root}}, false, false));
    set_root(spec, "the text up to the trigger", body).ok();
  }
  MILLRACE_TRY_VOID(spec.check());
  MILLRACE_TRY(Grammar grammar, Grammar::create(spec, limits));
  MILLRACE_TRY_VOID(check_begin(grammar));
  grammar.notes = std::move(notes);
  return grammar;
}

Result<CompiledGrammar> GrammarCache::get(const Constraint& constraint) {
  const std::string key = key_of(constraint);
  {
    std::lock_guard lock(mutex_);
    if (auto found = entries_.find(key); found != entries_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.compiled;
    }
  }
  std::unique_lock compiling(compiling_, std::defer_lock);
  if (bounds_.one_at_a_time) compiling.lock();
  MILLRACE_TRY(Grammar grammar, compile_constraint(constraint, bounds_.limits));
  if (grammar.bytes() > bounds_.largest_grammar)
    return Error::unsupported(fmt::format("grammar: takes {} bytes, more than the {} that memory allows; simplify it", grammar.bytes(), bounds_.largest_grammar));
  std::lock_guard lock(mutex_);
  if (!masks_) masks_ = std::make_shared<TokenMasks>(pieces_(), bounds_.mask_bytes);
  const CompiledGrammar compiled{std::make_shared<const Grammar>(std::move(grammar)), masks_, masks_->new_grammar(), bounds_.table_bytes};
  if (entries_.contains(key)) return entries_.at(key).compiled;  // another thread was first
  uses_.push_front(key);
  const size_t bytes = compiled.grammar->bytes() + 2 * key.size();
  entries_.emplace(key, Entry{compiled, bytes, uses_.begin()});
  bytes_ += bytes;
  while (bytes_ > bounds_.grammar_bytes && uses_.size() > 1) {
    auto last = entries_.find(uses_.back());
    bytes_ -= last->second.bytes;
    entries_.erase(last);
    uses_.pop_back();
  }
  return compiled;
}

size_t GrammarCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace millrace
