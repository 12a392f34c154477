// SimulatedExecutor: steps take the time that a cost model predicts, on a virtual clock that only they advance, and
// produce pseudorandom tokens until each request's known length. Its pool has blocks without bytes; its tier moves them
// at the cost model's speed, one move after the other. Planner, policies and prefix index are the engine's own.
#pragma once

#include <memory>

#include "base/clock.h"
#include "millrace/options.h"
#include "run/executor.h"

namespace millrace {

inline constexpr int64_t kSimulatedVocab = 1 << 20;

class SimulatedExecutor final : public Executor {
 public:
  // Memory and step limits come from the options; `context` is required. `clock` must outlive it. `window`: keys that
  // every layer of the simulated model sees; 0: all. Errors: user.
  static Result<std::unique_ptr<SimulatedExecutor>> create(std::unique_ptr<CostModel> cost, ManualClock& clock,
                                                           const EngineOptions& options, int64_t window = 0);

  const ExecutorLimits& limits() const override { return limits_; }
  KvPool& kv() override { return *kv_; }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  // Blocks have no bytes here: options.kv_ssd_size counts tokens, and no file options.kv_ssd is made.
  Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions& options) override;
  CostModel* cost() override { return cost_.get(); }
  Result<void> check(const Request& request) const override;
  Result<void> begin(LiveStream&) const override { return {}; }
  void forward(std::span<const StepWork> work) override;
  Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) override;
  void flush(LiveStream&, TokenEvent&) override {}

  // When the next move of the tier or the prefix store ends; 0: there is none.
  int64_t next_move_ns() const;

 private:
  class Tier;
  explicit SimulatedExecutor(ManualClock& clock) : clock_(clock) {}

  ManualClock& clock_;
  std::unique_ptr<CostModel> cost_;
  std::unique_ptr<KvPool> kv_;
  int64_t disk_free_ns_ = 0;  // of the prefix store
  ExecutorLimits limits_;
  int64_t bus_free_ns_ = 0;  // end of the last move begun so far
};

}  // namespace millrace
