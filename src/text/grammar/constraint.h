// Compiles request constraints to grammars and caches them for later requests with the same constraint.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "millrace/constraint.h"
#include "millrace/request.h"
#include "text/grammar/matcher.h"

namespace millrace {

// Compiles a constraint with the budget in `limits`, or with a budget of the default bounds. Errors: user (syntax
// error, nothing satisfies the constraint), unsupported (a construct or a size, whose place the message names; out of
// memory or time), cancelled.
Result<Grammar> compile_constraint(const Constraint& constraint, const GrammarLimits& limits = {});

struct GrammarBounds {
  size_t grammar_bytes = size_t{64} << 20;  // cached grammars that are not in use, and cached errors
  // All grammars. One that does not fit is rejected until others are released.
  size_t used_bytes = size_t{512} << 20;
  size_t mask_bytes = size_t{64} << 20;
  size_t table_bytes = size_t{16} << 20;  // parse tables of one stream
  size_t largest_grammar = SIZE_MAX;      // larger grammars are rejected
  int compiles_at_once = 0;               // 0: unlimited
  double refusal_seconds = 300;           // lifetime of a cached error that was slow to compute
  CompileBounds compile;                  // per compilation
  GrammarLimits limits;
};

// A cache of compiled constraints for one vocabulary, which is loaded with the first constraint. A grammar is in use
// while a caller holds a copy of CompiledGrammar::grammar; it is then never evicted. Thread-safe.
class GrammarCache {
 public:
  using Pieces = std::function<std::vector<std::string>()>;  // see constrained_pieces()
  explicit GrammarCache(Pieces pieces, const GrammarBounds& bounds = {})
      : pieces_(std::move(pieces)), bounds_(bounds) {}

  // Returns the compiled constraint. If it is not cached, compiles it on the calling thread and computes the token mask
  // of the first step. Errors: those of compile_constraint(), unsupported (over the time limit of `order`, or over the
  // bounds), cancelled, resource (the grammars in use leave no room).
  Result<CompiledGrammar> get(const Constraint& constraint, const CompileOrder& order = {});
  // Returns the cached result of get(), or nullopt. Never compiles.
  std::optional<Result<CompiledGrammar>> find(const Constraint& constraint);
  size_t bytes() const;

 private:
  struct Entry {
    std::optional<CompiledGrammar> compiled;  // nullopt: `refusal` is returned until the time `forgotten`
    Error refusal;
    std::chrono::steady_clock::time_point forgotten;
    size_t bytes = 0;
    std::list<std::string>::iterator use;
  };
  using Entries = std::unordered_map<std::string, Entry>;  // by the whole constraint
  std::optional<Result<CompiledGrammar>> find_locked(const std::string& key);
  Result<CompiledGrammar> compile(const Constraint& constraint, const CompileOrder& order);
  Result<void> wait_for_turn(const CompileOrder& order);
  void end_turn();
  Result<void> keep_locked(const std::string& key, Entry entry);
  void erase_locked(Entries::iterator entry);

  Pieces pieces_;
  GrammarBounds bounds_;
  std::once_flag vocabulary_;
  std::shared_ptr<TokenMasks> masks_;  // set once, under `vocabulary_`
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  int compiling_ = 0;
  size_t bytes_ = 0;
  Entries entries_;
  std::list<std::string> uses_;  // most recently used first
};

}  // namespace millrace
