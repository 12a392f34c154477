// From a request's constraint to a compiled grammar, kept for the next request that asks for the same.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "millrace/request.h"
#include "text/grammar/matcher.h"

namespace millrace {

// Under the budget in `limits`, or else one with the default bounds. Errors: user (syntax, nothing satisfies it),
// unsupported (a construct or a size, with the place; more bytes or time than the budget has), cancelled.
Result<Grammar> compile_constraint(const Constraint& constraint, const GrammarLimits& limits = {});

struct GrammarBounds {
  size_t grammar_bytes = size_t{64} << 20;  // of those that are kept
  size_t mask_bytes = size_t{64} << 20;
  size_t table_bytes = size_t{16} << 20;    // of one stream's readings
  size_t largest_grammar = SIZE_MAX;        // a larger one is refused
  bool one_at_a_time = false;               // no two are compiled at once
  GrammarLimits limits;
};

// Any thread. One for each vocabulary, which is looked at when the first constraint comes.
class GrammarCache {
 public:
  using Pieces = std::function<std::vector<std::string>()>;  // see constrained_pieces()
  explicit GrammarCache(Pieces pieces, const GrammarBounds& bounds = {}) : pieces_(std::move(pieces)), bounds_(bounds) {}

  // Errors as compile_constraint.
  Result<CompiledGrammar> get(const Constraint& constraint);
  size_t bytes() const;

 private:
  struct Entry {
    CompiledGrammar compiled;
    size_t bytes = 0;
    std::list<std::string>::iterator use;
  };
  Pieces pieces_;
  std::shared_ptr<TokenMasks> masks_;
  GrammarBounds bounds_;
  std::mutex compiling_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, Entry> entries_;  // by all that the constraint says
  std::list<std::string> uses_;                     // the latest first
};

}  // namespace millrace
