// The model's executor with a test's cost model: steps and swaps cost a fixed time per token, and every load from the
// prefix store costs a fixed time.
#pragma once

#include "run/cpu_executor.h"

namespace millrace::testing {

struct FixedSeconds {
  double token = 1;          // of a step, per token
  double swapped_token = 1;  // one way, per token
  double load = 1;           // of any load from the prefix store
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

class CostedExecutor final : public Executor {
 public:
  // Without `joins_early`, streams run once everything that they load has arrived.
  CostedExecutor(std::unique_ptr<Executor> inner, const FixedSeconds& seconds, bool joins_early = true)
      : inner_(std::move(inner)), cost_(seconds), joins_early_(joins_early) {}
  const ExecutorLimits& limits() const override { return inner_->limits(); }
  KvPool& kv() override { return inner_->kv(); }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override { return inner_->make_tier(tokens); }
  Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions& o) override { return inner_->make_store(o); }
  bool before_attention(std::function<void(int64_t)> ready) override {
    return joins_early_ && inner_->before_attention(std::move(ready));
  }
  DraftModel* draft_model() override { return inner_->draft_model(); }
  CostModel* cost() override { return &cost_; }
  Result<void> check(const Request& request) const override { return inner_->check(request); }
  const Facts& facts() const override { return inner_->facts(); }
  Result<void> check_parts(const ContextPlan& plan) const override { return inner_->check_parts(plan); }
  bool places_parts() const override { return inner_->places_parts(); }
  bool hold_part(LiveStream& stream, const ContextPart& part, int64_t& budget) override {
    return inner_->hold_part(stream, part, budget);
  }
  int64_t put_part(LiveStream& stream, const ContextPart& part, int64_t count) override {
    return inner_->put_part(stream, part, count);
  }
  Result<void> check_blocks() const override { return inner_->check_blocks(); }
  void compact_encoded(const LiveStream& stream) override { inner_->compact_encoded(stream); }
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) override {
    inner_->move_keys(blocks, slot, count, positions);
  }
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override {
    inner_->keys_changed(blocks, begin, end);
  }
  Result<void> begin(LiveStream& stream) const override { return inner_->begin(stream); }
  void observe_attention() override { inner_->observe_attention(); }
  void forward(std::span<const StepWork> work) override { inner_->forward(work); }
  Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) override {
    return inner_->choose(stream, row, event);
  }
  void likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) override {
    inner_->likeliest(row, count, out);
  }
  TokenId best_token(int64_t row) override { return inner_->best_token(row); }
  void best_tokens(int64_t row, std::span<TokenId> out) override { inner_->best_tokens(row, out); }
  std::vector<TokenId> end_tokens() const override { return inner_->end_tokens(); }
  void write(LiveStream& stream, TokenEvent& event) override { inner_->write(stream, event); }
  void flush(LiveStream& stream, TokenEvent& event) override { inner_->flush(stream, event); }
  const float* logits() const override { return inner_->logits(); }

 private:
  std::unique_ptr<Executor> inner_;
  FixedSecondsCost cost_;
  bool joins_early_;
};

}  // namespace millrace::testing
