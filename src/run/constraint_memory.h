// Constraints compiled for one model, and what that may take of memory. Without a budget the bounds are wide; with one,
// everything lies in one account of a fixed size:
//
//   | vocabulary's tree | masks 1/8 | grammars 1/8 | two being compiled 1/4 | the open requests 1/2: grammars and
//   readings |
//
// The account is taken with the engine, before the KV cache gets what is left.
#pragma once

#include <mutex>

#include "base/memory_accounts.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer.h"

namespace millrace {

// The least that constraints can be kept with beside this vocabulary.
int64_t least_constraint_memory(const Tokenizer& tokenizer);
// What is kept of a budget for them where nobody says how much: a sixteenth, at most 64 MiB, at least what the
// vocabulary needs. 0: the model has no tokenizer, there is no budget, or that least is more than a quarter of it.
int64_t default_constraint_memory(const Tokenizer* tokenizer, int64_t budget);

class ConstraintMemory {
 public:
  // `bytes`: the account's size, which somebody has taken; 0: under a budget nothing can be compiled. Not to outlive
  // the tokenizer.
  ConstraintMemory(const Tokenizer& tokenizer, std::shared_ptr<MemoryAccounts> accounts, int64_t bytes,
                   int64_t streams);

  // Any thread. Errors: as GrammarCache::get, their messages beginning with "constraint: "; unsupported (no memory is
  // kept for it).
  Result<CompiledGrammar> get(const Constraint& constraint, const CompileOrder& order = {});
  // What get() gives, where it is known without compiling.
  std::optional<Result<CompiledGrammar>> find(const Constraint& constraint);

 private:
  Result<void> open();

  const Tokenizer& tokenizer_;
  std::shared_ptr<MemoryAccounts> accounts_;
  int64_t bytes_, streams_;
  std::mutex mutex_;
  std::unique_ptr<GrammarCache> cache_;
};

}  // namespace millrace
