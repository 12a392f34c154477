// SamplerStep: one way to change or narrow the choice of the next token. One file each under steps/ and one line in
// builtin.cc; the lines' order is the order in which steps run. A step belongs to one sequence.
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

// Everything a step may be made from: the request's options and what the caller knows of the model.
struct SamplerSetup {
  SamplingOptions options;
  int64_t min_tokens = 0;                          // end-of-generation tokens are held back before that many
  bool ignore_eos = false;                         // ... or always
  std::vector<TokenId> end_of_generation;          // every id that ends a generation
  std::vector<std::vector<TokenId>> dry_breakers;  // options.dry_breakers as token sequences (setup.h)
  std::vector<std::vector<TokenId>> bad_words;     // sequences that are never completed
  ThinkingBudget thinking;
  const Tokenizer* tokenizer = nullptr;  // of thinking's marks; outlives the steps. Null: no budget is kept
  int32_t vocab_size = 0;
  std::optional<CompiledGrammar> grammar;  // what the request's constraint was compiled to

  bool greedy() const { return options.temperature == 0; }
  // Truncating steps do nothing for greedy decoding, and mirostat replaces them.
  bool truncates() const { return !greedy() && options.mirostat == 0; }
};

class SamplerStep {
 public:
  virtual ~SamplerStep() = default;
  virtual void apply(SamplingRow& row) = 0;
  virtual void accept(TokenId /*token*/) {}                 // a token of the prompt, or the one chosen after apply()
  virtual void reset() {}                                   // back to before the first accept()
  virtual bool ended() const { return false; }              // nothing can follow what was accepted
  virtual const Error* failure() const { return nullptr; }  // why no further token can be chosen
  virtual std::unique_ptr<SamplerStep> clone() const = 0;
};

// Makes the step, or null when the options leave it without effect.
using SamplerFactory = std::unique_ptr<SamplerStep> (*)(const SamplerSetup& setup);

const Registry<SamplerFactory>& samplers();

}  // namespace millrace
