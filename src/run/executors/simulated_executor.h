// SimulatedExecutor: steps take the time that a cost model predicts, on a virtual clock that only they advance, and
// produce pseudorandom tokens until each request's known length. Its pool has blocks without bytes, in the layout of an
// engine with the same options; its tier moves them at the cost model's speed, one move after the other. Planner,
// policies, evictors and prefix index are the engine's own. No attention is computed, so an evictor that observes it
// sees no difference between tokens: it drops as many as in an engine, but others.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "run/executors/executor.h"
#include "run/executors/simulated_chooser.h"
#include "run/executors/simulated_documents.h"
#include "run/executors/simulated_kv.h"
#include "run/executors/simulated_time.h"
#include "run/plan/engine_plan.h"

namespace millrace {

// The model whose steps the cost model knows.
struct SimulatedModel {
  int64_t layers = 1;    // layers for which an evictor may have separate budgets
  int64_t kv_heads = 1;  // KV heads of each layer
  int64_t window = 0;    // keys that every layer sees; 0: all
  // bytes of one stream's recurrent states, of which the prefix cache holds copies; 0: no layer is recurrent
  int64_t state_bytes = 0;
};

class SimulatedExecutor final : public Executor {
 public:
  // Memory and step limits are read from the plan's options; `context` is required. `clock` must outlive it. The cost
  // model's figures, and the sizes of caches in tokens, are for F16: another KV format makes room for more tokens, and
  // the tails of a codec take theirs from it. Errors: user, unsupported.
  static Result<std::unique_ptr<SimulatedExecutor>> create(std::unique_ptr<CostModel> cost, ManualClock& clock,
                                                           const EnginePlan& plan, const SimulatedModel& model = {});
  // Variant with a plan of its own, for callers that run steps without an engine's loop.
  static Result<std::unique_ptr<SimulatedExecutor>> create(std::unique_ptr<CostModel> cost, ManualClock& clock,
                                                           const EngineOptions& options,
                                                           const SimulatedModel& model = {});
  // The plan of a simulated engine. Errors: those of EnginePlan::create(), unsupported (the KV format).
  static Result<EnginePlan> make_plan(const EngineOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  bool shares_prefixes() const { return shares_prefixes_; }  // streams can share blocks
  Result<void> check(const Request& request) const override;
  const Facts& facts() const override { return facts_; }
  void forward(const StepInput& input, StepOutput& output) override;

  // When the next move of the tier or the prefix store ends; 0: there is none.
  int64_t next_move_ns() const { return home_->next_move_ns(); }

 private:
  explicit SimulatedExecutor(ManualClock& clock) : time_{clock} {}
  void start(KvPool pool, double kv_ratio, const std::string& codec);

  Facts facts_;
  SimulatedTime time_;
  std::unique_ptr<KvPool> kv_;
  std::optional<SimulatedKv> home_;
  std::optional<SimulatedDocuments> documents_;
  SimulatedChooser chooser_;
  bool shares_prefixes_ = true;
  int64_t layers_ = 1;
  ExecutorLimits limits_;
};

}  // namespace millrace
