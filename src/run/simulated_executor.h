// SimulatedExecutor: steps take the time that a cost model predicts, on a virtual clock that only they advance, and
// produce pseudorandom tokens until each request's known length. Its pool has blocks without bytes, in the layout of an
// engine with the same options; its tier moves them at the cost model's speed, one move after the other. Planner,
// policies, evictors and prefix index are the engine's own. No attention is computed, so an evictor that observes it
// sees no difference between tokens: it drops as many as in an engine, but others.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "millrace/options.h"
#include "run/executor.h"
#include "run/kept_rows.h"
#include "run/pattern_steps.h"

namespace millrace {

inline constexpr int64_t kSimulatedVocab = 1 << 20;

// The model whose steps the cost model knows.
struct SimulatedModel {
  int64_t layers = 1;    // that an evictor may give budgets of their own
  int64_t kv_heads = 1;  // of each of them, the same
  int64_t window = 0;    // keys that every layer sees; 0: all
};

class SimulatedExecutor final : public Executor {
 public:
  // Memory and step limits come from the options; `context` is required. `clock` must outlive it. The cost model's
  // figures, and the sizes of caches in tokens, are for F16: another KV format makes room for more tokens, and the
  // tails of a codec take theirs from it. Errors: user, unsupported.
  static Result<std::unique_ptr<SimulatedExecutor>> create(std::unique_ptr<CostModel> cost, ManualClock& clock,
                                                           const EngineOptions& options,
                                                           const SimulatedModel& model = {});

  const ExecutorLimits& limits() const override { return limits_; }
  KvPool& kv() override { return *kv_; }
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  // Blocks have no bytes here: options.kv_ssd_size counts tokens, and no file options.kv_ssd is made.
  Result<std::unique_ptr<PrefixStore>> make_store(const EngineOptions& options) override;
  CostModel* cost() override { return cost_.get(); }
  bool shares_prefixes() const { return shares_prefixes_; }  // the KV format lets streams share blocks
  Result<void> check(const Request& request) const override;
  // A context's documents are copied where they are cached, in no time, and else computed.
  const Facts& facts() const override { return facts_; }
  Result<void> begin(LiveStream&) const override { return {}; }
  // Beside a KV format that encodes whole blocks rows of documents are kept apart, as in an engine (run/kept_rows.h).
  bool places_parts() const override { return kept_.has_value(); }
  Result<void> check_parts(const ContextPlan& plan) const override {
    return kept_ ? kept_->check(plan) : Result<void>();
  }
  bool hold_part(LiveStream& stream, const ContextPart& part, int64_t& budget) override;
  int64_t put_part(LiveStream& stream, const ContextPart& part, int64_t count) override {
    return KeptRows::let_go(stream, part, count);
  }
  Result<void> check_blocks() const override { return kept_ ? kept_->check_blocks() : Result<void>(); }
  void refresh(const LiveStream& stream) override;
  void forward(std::span<const StepWork> work) override;
  Result<bool> choose(LiveStream& stream, int64_t row, TokenEvent& event) override;
  void flush(LiveStream&, TokenEvent&) override {}

  // When the next move of the tier or the prefix store ends; 0: there is none.
  int64_t next_move_ns() const;

 private:
  class Tier;
  // As StepShape::add(), with the pattern.
  void add(int64_t first, int64_t count, int64_t outputs, StepShape& shape, bool answer = false);
  explicit SimulatedExecutor(ManualClock& clock) : clock_(clock) {}
  Result<void> keep_rows(const EngineOptions& options, const KvLayout& layout);
  // Tokens that take the bytes of `tokens` in F16.
  int64_t tokens_for(int64_t tokens) const { return static_cast<int64_t>(static_cast<double>(tokens) / kv_ratio_); }

  ManualClock& clock_;
  std::unique_ptr<CostModel> cost_;
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<KvPool> rows_;  // of documents
  std::optional<KeptRows> kept_;
  std::unique_ptr<PatternSteps> pattern_;  // null: queries see all keys
  double kv_ratio_ = 1;                    // bytes of a token, in those of F16
  bool shares_prefixes_ = true;
  std::string codec_;  // name; "": rows
  Facts facts_;
  int64_t layers_ = 1;
  int64_t disk_free_ns_ = 0;  // of the prefix store
  ExecutorLimits limits_;
  int64_t bus_free_ns_ = 0;  // end of the last move begun so far
};

}  // namespace millrace
