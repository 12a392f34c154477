// Compiles constraints for one model within bounds of memory. Without a budget the bounds are wide; with one,
// everything is in one account of a fixed size:
//
//   | vocabulary's tree | masks 1/8 | grammars 1/8 | two being compiled 1/4 | open requests 1/2: grammars, parse states
//   |
//
// The account is taken when the engine is created, before the KV cache takes the remaining memory.
#pragma once

#include <mutex>

#include "base/memory_accounts.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer.h"

namespace millrace {

// The smallest account that works with this vocabulary.
int64_t least_constraint_memory(const Tokenizer& tokenizer);
// The default share of a budget: a sixteenth, at most 64 MiB, at least least_constraint_memory(). 0: the model has no
// tokenizer, there is no budget, or the minimum is more than a quarter of it.
int64_t default_constraint_memory(const Tokenizer* tokenizer, int64_t budget);

class ConstraintMemory {
 public:
  // `bytes`: the size of the account, which the caller has taken; 0: under a budget nothing can be compiled. The
  // tokenizer must outlive it.
  ConstraintMemory(const Tokenizer& tokenizer, std::shared_ptr<MemoryAccounts> accounts, int64_t bytes,
                   int64_t streams);

  // Any thread. Errors: as GrammarCache::get, with messages that begin with "constraint: "; unsupported (no memory is
  // reserved for constraints).
  Result<CompiledGrammar> get(const Constraint& constraint, const CompileOrder& order = {});
  // The result of get(), where it is known without compiling.
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
