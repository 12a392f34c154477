// SamplerStep: one operation on the distribution of the next token. Each step is one file under steps/ and one line in
// builtin.cc; steps run in the order of these lines. A step object belongs to one sequence.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/registry.h"
#include "millrace/request.h"
#include "sampling/row.h"
#include "text/grammar/matcher.h"

namespace millrace {

class Tokenizer;

// The input from which steps are created: the request's options and facts about the model.
struct SamplerSetup {
  SamplingOptions options;
  int64_t min_tokens = 0;                          // end-of-generation tokens are masked until the answer is this long
  bool ignore_eos = false;                         // end-of-generation tokens are always masked
  std::vector<TokenId> end_of_generation;          // every id that ends a generation
  std::vector<std::vector<TokenId>> dry_breakers;  // options.dry_breakers as token sequences (setup.h)
  std::vector<std::vector<TokenId>> bad_words;     // token sequences that are never generated
  ThinkingBudget thinking;
  const Tokenizer* tokenizer = nullptr;  // encodes the thinking markers; must outlive the steps. Null: no budget
  int32_t vocab_size = 0;
  std::optional<CompiledGrammar> grammar;  // compiled from the request's constraint

  bool greedy() const { return options.temperature == 0; }
  // Returns true if truncating steps are used. Greedy decoding does not need them, and mirostat replaces them.
  bool truncates() const { return !greedy() && options.mirostat == 0; }
};

// A step's unfinished work for the next token. One thread at a time runs it; meanwhile, no thread may use the step.
class DeferredWork {
 public:
  virtual ~DeferredWork() = default;
  virtual bool run(int64_t units) = 0;  // like SamplerStep::prepare()
};

class SamplerStep {
 public:
  virtual ~SamplerStep() = default;
  virtual void apply(SamplingRow& row) = 0;
  // Does the slow part of the next apply() in advance, for about `units` of work at most (mask_units.h); apply() does
  // the remaining work. Returns true if no work remains; with 0 units, only reports this. Results do not depend on
  // calls of prepare().
  virtual bool prepare(int64_t /*units*/) { return true; }
  // Returns true if the work of accept() is complete. Otherwise ended() and failure() still refer to the token before.
  virtual bool settled() const { return true; }
  // Returns the work that prepare() left, for another thread to run; null: no work is left.
  virtual std::shared_ptr<DeferredWork> deferred() { return nullptr; }
  virtual size_t bytes() const { return 0; }                // bytes that clone() copies; 0 if they are few
  virtual void accept(TokenId /*token*/) {}                 // adds a prompt token, or the token sampled after apply()
  virtual void reset() {}                                   // returns to the state before the first accept()
  virtual bool ended() const { return false; }              // true: no token can follow the accepted tokens
  virtual const Error* failure() const { return nullptr; }  // why no further token can be sampled
  virtual std::unique_ptr<SamplerStep> clone() const = 0;
};

// Creates the step, or returns null if the options make it a no-op.
using SamplerFactory = std::unique_ptr<SamplerStep> (*)(const SamplerSetup& setup);

const Registry<SamplerFactory>& samplers();

}  // namespace millrace
