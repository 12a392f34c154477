// From a request's constraint to a compiled grammar, kept for the next request that asks for the same.
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

// Under the budget in `limits`, or else one with the default bounds. Errors: user (syntax, nothing satisfies it),
// unsupported (a construct or a size, with the place; more bytes or time than the budget has), cancelled.
Result<Grammar> compile_constraint(const Constraint& constraint, const GrammarLimits& limits = {});

struct GrammarBounds {
  size_t grammar_bytes =
      size_t{64} << 20;  // of those that are kept without being in use, and of what refusals are known by
  size_t used_bytes = size_t{512} << 20;  // of all of them together; one that does not fit is refused for now
  size_t mask_bytes = size_t{64} << 20;
  size_t table_bytes = size_t{16} << 20;  // of one stream's readings
  size_t largest_grammar = SIZE_MAX;      // a larger one is refused
  int compiles_at_once = 0;               // 0: as many as come
  double refusal_seconds = 300;           // that a refusal is kept which took long to come by
  CompileBounds compile;                  // of each compilation
  GrammarLimits limits;
};

// Any thread. One for each vocabulary, which is looked at when the first constraint comes. What somebody holds (his
// copy of CompiledGrammar::grammar) stays here as long as he does.
class GrammarCache {
 public:
  using Pieces = std::function<std::vector<std::string>()>;  // see constrained_pieces()
  explicit GrammarCache(Pieces pieces, const GrammarBounds& bounds = {})
      : pieces_(std::move(pieces)), bounds_(bounds) {}

  // Compiles on the calling thread what is not known yet, and works out which tokens the answer may begin with. Errors
  // as compile_constraint; unsupported (out of the order's or the bounds' memory or time), cancelled, resource (those
  // in use leave no room).
  Result<CompiledGrammar> get(const Constraint& constraint, const CompileOrder& order = {});
  // What get() gives, where it is known already.
  std::optional<Result<CompiledGrammar>> find(const Constraint& constraint);
  size_t bytes() const;

 private:
  struct Entry {
    std::optional<CompiledGrammar> compiled;  // nothing: `refusal`, until `forgotten`
    Error refusal;
    std::chrono::steady_clock::time_point forgotten;
    size_t bytes = 0;
    std::list<std::string>::iterator use;
  };
  using Entries = std::unordered_map<std::string, Entry>;  // by all that the constraint says
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
  std::list<std::string> uses_;  // the latest first
};

}  // namespace millrace
