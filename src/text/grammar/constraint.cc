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

constexpr size_t kMaxTrigger = 1024;
constexpr size_t kMaxChoices = 10'000;

using Kind = Constraint::Kind;

Result<void> set_root(GrammarSpec& spec, const char* name, ExprId body) {
  spec.root = spec.add_rule(name);
  spec.set_body(spec.root, body);
  return {};
}

Result<void> add_constraint(GrammarSpec& spec, const Constraint& constraint, const GrammarLimits& limits,
                            GrammarNotes& notes) {
  if (static_cast<int64_t>(constraint.text.size()) > limits.source_bytes)
    return Error::unsupported(fmt::format("constraint: longer than {} bytes", limits.source_bytes));
  switch (constraint.kind) {
    case Kind::none: return Error::internal("constraint: its kind is not set");
    case Kind::json_object: return set_root(spec, "a JSON object", JsonRules(spec).any_object());
    case Kind::json_schema: return compile_json_schema(spec, constraint.text, limits, notes);
    case Kind::grammar:
      MILLRACE_TRY_VOID(parse_gbnf(spec, constraint.text, limits));
      spec.inline_rules();
      return {};
    case Kind::structure: return compile_structure(spec, constraint.text, limits, notes);
    case Kind::regex: {
      GrammarSpec own(limits.budget);  // an automaton first: ^ and $ are defined only within the regex
      MILLRACE_TRY(const ExprId body, parse_pattern(own, constraint.text, Spelling::utf8, limits));
      MILLRACE_TRY(Dfa dfa, make_dfa(own, body, limits, "regex"));
      return set_root(spec, "the regex", spec.dfa(std::make_shared<const Dfa>(std::move(dfa))));
    }
    case Kind::choice: {
      size_t bytes = 0;
      std::vector<ExprId> ways;
      if (constraint.choices.empty()) return Error::user("choice: the list of choices is empty");
      for (const std::string& choice : constraint.choices) {
        if (choice.empty()) return Error::user("choice: a choice must not be empty");
        bytes += choice.size();
        ways.push_back(spec.bytes(choice));
      }
      if (ways.size() > kMaxChoices || static_cast<int64_t>(bytes) > limits.source_bytes)
        return Error::unsupported(
            fmt::format("choice: more than {} texts or {} bytes", kMaxChoices, limits.source_bytes));
      return set_root(spec, "the choice", spec.choice(std::move(ways)));
    }
  }
  return {};
}

// Checks that a stream can start. Later bounds are detected during generation.
Result<void> check_begin(const Grammar& grammar) {
  ParseTable table(std::shared_ptr<const Grammar>(std::shared_ptr<void>(), &grammar));
  table.set_work(GrammarMatcher::kFirstWork);
  const SetId begin = table.begin();
  const ParseBound met = table.exceeded() != ParseBound::none ? table.exceeded()
                         : begin == kDead                     ? ParseBound::depth
                                                              : ParseBound::none;
  if (met == ParseBound::none) return {};
  return Error::unsupported(std::string("grammar: at the start, ") + parse_bound_reason(met));
}

std::string key_of(const Constraint& c) {
  std::string key =
      fmt::format("{} {} {} ", static_cast<int>(c.kind), c.text.size(), c.trigger.size()) + c.text + c.trigger;
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
  if (constraint.trigger.size() > kMaxTrigger)
    return Error::user(fmt::format("constraint: the trigger is longer than {} bytes", kMaxTrigger));
  GrammarSpec spec(limits.budget);
  GrammarNotes notes;
  MILLRACE_TRY_VOID(add_constraint(spec, constraint, limits, notes));
  if (!constraint.trigger.empty()) {  // free text up to the trigger, then the root
    MILLRACE_TRY(const ExprId body,
                 triggered_text(spec, {{constraint.trigger, spec.root}}, false, false, limits.budget));
    set_root(spec, "the text up to the trigger", body).ok();
  }
  MILLRACE_TRY_VOID(spec.check());
  MILLRACE_TRY(Grammar grammar, Grammar::create(spec, limits));
  MILLRACE_TRY_VOID(check_begin(grammar));
  grammar.notes = std::move(notes);
  return grammar;
}

std::optional<Result<CompiledGrammar>> GrammarCache::find_locked(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = found->second;
  if (!entry.compiled && entry.forgotten < std::chrono::steady_clock::now()) {
    erase_locked(found);
    return std::nullopt;
  }
  uses_.splice(uses_.begin(), uses_, entry.use);
  return entry.compiled ? Result<CompiledGrammar>(*entry.compiled) : Result<CompiledGrammar>(entry.refusal);
}

std::optional<Result<CompiledGrammar>> GrammarCache::find(const Constraint& constraint) {
  const std::string key = key_of(constraint);
  std::lock_guard lock(mutex_);
  return find_locked(key);
}

Result<void> GrammarCache::wait_for_turn(const CompileOrder& order) {
  std::unique_lock lock(mutex_);
  while (bounds_.compiles_at_once > 0 && compiling_ >= bounds_.compiles_at_once) {
    if (order.cancelled && *order.cancelled) return Error::cancelled("constraint: cancelled, the request has ended");
    turn_.wait_for(lock, std::chrono::milliseconds(20));  // polls, because a cancellation does not notify
  }
  ++compiling_;
  return {};
}

void GrammarCache::end_turn() {
  {
    std::lock_guard lock(mutex_);
    --compiling_;
  }
  turn_.notify_one();
}

Result<CompiledGrammar> GrammarCache::compile(const Constraint& constraint, const CompileOrder& order) {
  CompileBounds compile = bounds_.compile;
  if (order.seconds > 0) compile.seconds = std::min(compile.seconds, order.seconds);
  CompileBudget budget(compile, order.cancelled);
  GrammarLimits limits = bounds_.limits;
  limits.budget = &budget;
  MILLRACE_TRY(Grammar grammar, compile_constraint(constraint, limits));
  if (grammar.bytes() > bounds_.largest_grammar)
    return Error::unsupported(fmt::format("grammar: takes {} bytes, above the limit of {} bytes; simplify it",
                                          grammar.bytes(), bounds_.largest_grammar));
  std::call_once(vocabulary_, [this] { masks_ = std::make_shared<TokenMasks>(pieces_(), bounds_.mask_bytes); });
  CompiledGrammar compiled{std::make_shared<const Grammar>(std::move(grammar)), masks_, masks_->new_grammar(),
                           bounds_.table_bytes};
  GrammarMatcher matcher(compiled);  // precomputes the masks of the first step
  std::vector<uint64_t> bits(matcher.words());
  matcher.mask(bits);
  return compiled;
}

void GrammarCache::erase_locked(Entries::iterator entry) {
  bytes_ -= entry->second.bytes;
  uses_.erase(entry->second.use);
  entries_.erase(entry);
}

// Evicts least recently used entries until the new one fits, but never grammars in use.
Result<void> GrammarCache::keep_locked(const std::string& key, Entry entry) {
  const auto held = [](const Entry& e) { return e.compiled && e.compiled->grammar.use_count() > 1; };
  size_t idle = entry.bytes;
  for (const auto& [_, other] : entries_)
    if (!held(other)) idle += other.bytes;
  for (auto at = uses_.end();
       at != uses_.begin() && (idle > bounds_.grammar_bytes || bytes_ + entry.bytes > bounds_.used_bytes);) {
    const auto last = entries_.find(*--at);
    if (held(last->second)) continue;
    idle -= last->second.bytes;
    at = std::next(at);
    erase_locked(last);
  }
  if (bytes_ + entry.bytes > bounds_.used_bytes)
    return Error::resource(
        fmt::format("constraint: grammars in use take {} of {} bytes; try again later", bytes_, bounds_.used_bytes));
  uses_.push_front(key);
  entry.use = uses_.begin();
  bytes_ += entry.bytes;
  entries_.emplace(key, std::move(entry));
  return {};
}

Result<CompiledGrammar> GrammarCache::get(const Constraint& constraint, const CompileOrder& order) {
  constexpr std::chrono::milliseconds kLong{5};  // faster failures are not worth caching
  const std::string key = key_of(constraint);
  {
    std::lock_guard lock(mutex_);
    if (auto found = find_locked(key)) return *found;
  }
  MILLRACE_TRY_VOID(wait_for_turn(order));
  const auto began = std::chrono::steady_clock::now();
  auto compiled = [&] {
    const std::unique_ptr<GrammarCache, void (*)(GrammarCache*)> turn(this,
                                                                      [](GrammarCache* cache) { cache->end_turn(); });
    return compile(constraint, order);
  }();
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  if (auto found = find_locked(key)) return *found;  // another thread was first
  Entry entry;
  entry.bytes = 2 * key.size() + sizeof(Entry);
  if (compiled.ok()) {
    entry.bytes += compiled->grammar->bytes();
    entry.compiled = *compiled;
    MILLRACE_TRY_VOID(keep_locked(key, std::move(entry)));
    return compiled;
  }
  const bool final = compiled.error().kind == ErrorKind::user ||
                     (compiled.error().kind == ErrorKind::unsupported && order.seconds == 0);
  if (final && now - began > kLong) {
    entry.refusal = compiled.error();
    entry.forgotten = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                std::chrono::duration<double>(bounds_.refusal_seconds));
    keep_locked(key, std::move(entry)).ok();  // optional: without room the error is not cached
  }
  return compiled;
}

size_t GrammarCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace millrace
