// SamplerStep: one operation on the distribution of the next token. One file each under steps/ and one line in
// builtin.cc, whose order is the order in which steps run. A step belongs to one sequence.
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

// Everything a step may be created from: the request's options and the caller's knowledge of the model.
struct SamplerSetup {
  SamplingOptions options;
  int64_t min_tokens = 0;                          // end-of-generation tokens are suppressed before that many
  bool ignore_eos = false;                         // ... or always
  std::vector<TokenId> end_of_generation;          // every id that ends a generation
  std::vector<std::vector<TokenId>> dry_breakers;  // options.dry_breakers as token sequences (setup.h)
  std::vector<std::vector<TokenId>> bad_words;     // sequences that are never completed
  ThinkingBudget thinking;
  const Tokenizer* tokenizer = nullptr;  // for the thinking tags; outlives the steps. Null: no thinking budget
  int32_t vocab_size = 0;
  std::optional<CompiledGrammar> grammar;  // compiled from the request's constraint

  bool greedy() const { return options.temperature == 0; }
  // Truncating steps do nothing for greedy decoding, and mirostat replaces them.
  bool truncates() const { return !greedy() && options.mirostat == 0; }
};

// Work on the next token that a step has not finished. One thread at a time runs it, and none uses the step meanwhile.
class DeferredWork {
 public:
  virtual ~DeferredWork() = default;
  virtual bool run(int64_t units) = 0;  // as SamplerStep::prepare()
};

class SamplerStep {
 public:
  virtual ~SamplerStep() = default;
  virtual void apply(SamplingRow& row) = 0;
  // Prepares the slow part of the next apply(), for at most about `units` of work (mask_units.h); apply() does the
  // remainder. Returns true if nothing remains; with 0 units it only asks. Results do not depend on the calls.
  virtual bool prepare(int64_t /*units*/) { return true; }
  // Returns true if accept() has no work left. Otherwise ended() and failure() are still those of the token before.
  virtual bool settled() const { return true; }
  // The work that prepare() left over, which another thread may do; null: prepare() left nothing.
  virtual std::shared_ptr<DeferredWork> deferred() { return nullptr; }
  virtual size_t bytes() const { return 0; }                // that clone() copies, where they may be many
  virtual void accept(TokenId /*token*/) {}                 // a token of the prompt, or the one sampled after apply()
  virtual void reset() {}                                   // back to before the first accept()
  virtual bool ended() const { return false; }              // no token can follow the accepted ones
  virtual const Error* failure() const { return nullptr; }  // why no further token can be sampled
  virtual std::unique_ptr<SamplerStep> clone() const = 0;
};

// Creates the step, or returns null if the options make it a no-op.
using SamplerFactory = std::unique_ptr<SamplerStep> (*)(const SamplerSetup& setup);

const Registry<SamplerFactory>& samplers();

}  // namespace millrace
