// The model's executor with a test's cost model: steps and swaps cost a fixed time per token, and every load from the
// prefix store costs a fixed time.
#pragma once

#include "run/cpu_executor.h"

namespace millrace::testing {

struct FixedSeconds {
  double token = 1;          // cost of a step, per token
  double swapped_token = 1;  // one way, per token
  double load = 1;           // cost of any load from the prefix store
};

class FixedSecondsCost final : public CostModel {
 public:
  explicit FixedSecondsCost(const FixedSeconds& seconds) : seconds_(seconds) {}
  double step_seconds(const StepShape& shape) const override {
    return seconds_.token * static_cast<double>(shape.tokens);
  }
  double swap_seconds(int64_t tokens) const override { return seconds_.swapped_token * static_cast<double>(tokens); }
  double load_seconds(int64_t) const override { return seconds_.load; }

 private:
  FixedSeconds seconds_;
};

// A home with the keys and values of another, for streams that must have all their blocks before they run.
class WholeLoadsHome final : public KvHome {
 public:
  explicit WholeLoadsHome(KvHome& inner) : KvHome(inner.kv()), inner_(inner) {}
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override { return inner_.make_tier(tokens); }
  Result<std::unique_ptr<PrefixStore>> make_store(const ChosenStore& chosen) override {
    return inner_.make_store(chosen);
  }
  void compact_encoded(const KeptSlots& slots) override { inner_.compact_encoded(slots); }
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) override {
    inner_.move_keys(blocks, slot, count, positions);
  }
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override {
    inner_.keys_changed(blocks, begin, end);
  }

 private:
  KvHome& inner_;
};

class CostedExecutor final : public Executor {
 public:
  // Without `joins_early`, streams run once everything that they load has arrived.
  CostedExecutor(std::unique_ptr<Executor> inner, const FixedSeconds& seconds, bool joins_early = true)
      : inner_(std::move(inner)), home_(inner_->home()), cost_(seconds) {
    ExecutorParts parts = inner_->parts();
    parts.cost = &cost_;
    if (!joins_early) parts.home = &home_;
    set_parts(parts);
  }
  const ExecutorLimits& limits() const override { return inner_->limits(); }
  Result<void> check(const Request& request) const override { return inner_->check(request); }
  const Facts& facts() const override { return inner_->facts(); }
  void observe_attention() override { inner_->observe_attention(); }
  void forward(const StepInput& input, StepOutput& output) override { inner_->forward(input, output); }
  const float* logits() const override { return inner_->logits(); }

 private:
  std::unique_ptr<Executor> inner_;
  WholeLoadsHome home_;
  FixedSecondsCost cost_;
};

}  // namespace millrace::testing
