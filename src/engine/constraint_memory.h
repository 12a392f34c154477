// Constraints compiled for one model, and what that may take of memory. Without a budget the bounds are wide; with one,
// everything lies in one account of a fixed size:
//
//   | vocabulary's tree | masks 1/8 | grammars 1/8 | one being compiled 1/4 | the running streams 1/2: grammar and readings |
//
// The account is taken when the engine is made, where EngineOptions::constraint_memory says its size, and otherwise with
// the first constraint, of what is left.
#pragma once

#include <mutex>

#include "base/memory_accounts.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer.h"

namespace millrace {

class ConstraintMemory {
 public:
  // `bytes`: the account's size, 0 where it is still to be taken. Not to outlive the tokenizer.
  ConstraintMemory(const Tokenizer& tokenizer, std::shared_ptr<MemoryAccounts> accounts, int64_t bytes, int64_t streams);

  // Any thread. Errors: as compile_constraint, their messages beginning with "constraint: "; resource (no room).
  Result<CompiledGrammar> get(const Constraint& constraint);

 private:
  Result<void> open();

  const Tokenizer& tokenizer_;
  std::shared_ptr<MemoryAccounts> accounts_;
  int64_t bytes_, streams_;
  std::mutex mutex_;
  MemoryHold hold_;
  std::unique_ptr<GrammarCache> cache_;
};

}  // namespace millrace
