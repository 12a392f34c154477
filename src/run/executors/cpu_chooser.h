// CpuChooser: from the logits of this machine's passes to tokens and text, with each request's sampler chain.
#pragma once

#include <vector>

#include "models/model_runner.h"
#include "run/adapter_registry.h"
#include "run/constraint_memory.h"
#include "run/executors/token_choice.h"
#include "run/executors/token_chooser.h"
#include "run/language_model.h"

namespace millrace {

class CpuChooser final : public TokenChooser {
 public:
  // The parts of an engine that begin() prepares streams for. All outlive the object.
  struct Engine {
    const LanguageModel& model;
    ModelRunner& runner;
    ModelRunner* rows_runner = nullptr;  // runs documents; null: none
    AdapterRegistry& adapters;
    ConstraintMemory* grammars = nullptr;  // null: the model has no tokenizer
  };
  // `outputs`: rows of the largest step.
  CpuChooser(const Engine& engine, int64_t outputs);

  // Drops what choose_ahead() has sampled; before each pass.
  void forget() { choice_.forget(); }

  Result<CompiledConstraint> compile(const Constraint& constraint, const CompileOrder& order) const override;
  std::optional<Result<CompiledConstraint>> compiled(const Constraint& constraint) const override;
  Result<void> begin(StreamRef stream) const override;
  void choose_ahead(std::span<const ChoiceWork> work, const Acceptance& acceptance) override;
  bool may_choose(StreamRef stream, int64_t row) const override { return choice_.may_choose(stream, row); }
  Result<bool> choose(StreamRef stream, int64_t row, TokenEvent& event) override;
  void likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) override;
  TokenId best_token(int64_t row) override;
  void best_tokens(int64_t row, std::span<TokenId> out) override;
  std::vector<TokenId> end_tokens() const override;
  void write(StreamRef stream, TokenEvent& event) override;
  void flush(StreamRef stream, TokenEvent& event) override;

 private:
  Result<void> begin_adapters(StreamRef stream) const;

  const LanguageModel& model_;
  ModelRunner& runner_;
  ModelRunner* rows_runner_;
  AdapterRegistry& adapters_;
  ConstraintMemory* grammars_;
  mutable std::vector<MemoryHold> memory_;  // holds of adapters' rows
  TokenChoice choice_;
};

}  // namespace millrace
