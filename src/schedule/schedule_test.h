// A harness for tests of the planner and policies. It builds streams in any state and returns the plan as text.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "schedule/planner.h"

namespace millrace::testing {

// A step takes `step` seconds plus `token` per token; a swap takes `swap`.
struct FixedCost final : CostModel {
  double step = 0.01, token = 0.001, swap = 1;
  double step_seconds(const StepShape& shape) const override {
    return step + token * static_cast<double>(shape.tokens);
  }
  double swap_seconds(int64_t) const override { return swap; }
};

class PlannerHarness {
 public:
  explicit PlannerHarness(const std::string& policy) {
    auto made = make_policy(policy);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    if (made.ok()) planner = std::make_unique<Planner>(std::move(*made));
    limits.total_blocks = free_blocks;
  }

  Sequence& run(RequestId id, int64_t prompt, int64_t generated, int64_t computed, int64_t max_total = 1000) {
    Sequence& s = make(id, prompt, generated, max_total);
    s.phase = StreamPhase::running;
    s.computed = computed;
    running.push_back(&s);
    return s;
  }
  Sequence& wait(RequestId id, int64_t prompt, int64_t generated = 0, int64_t max_total = 1000) {
    Sequence& s = make(id, prompt, generated, max_total);
    waiting.push_back(&s);
    planner->policy().observe({ScheduleEvent::Kind::queued, &s});
    return s;
  }
  Sequence& hold(Sequence& s, int64_t blocks) {
    for (int64_t i = 0; i < blocks; ++i) s.kv.blocks.push_back(next_block_++);
    s.kv.reserved_blocks = blocks;
    return s;
  }
  void clear() { running.clear(), waiting.clear(), streams.clear(); }

  ScheduleView view() const {
    return {waiting, running, now_ns, free_blocks, leaving_blocks, swap_tokens, limits, cost};
  }
  std::string places() {
    StepPlan plan;
    planner->plan_places(view(), plan);
    return plan.to_string();
  }
  std::string chunks() {
    StepPlan plan;
    planner->plan_chunks(view(), plan);
    return plan.to_string();
  }
  // Reports to the policy that `tokens` of the stream ran.
  void ran(const Sequence& s, int64_t tokens, bool sampled, double seconds) {
    planner->policy().observe({ScheduleEvent::Kind::ran, &s, tokens, sampled, seconds});
  }
  void admitted(const Sequence& s) { planner->policy().observe({ScheduleEvent::Kind::admitted, &s}); }

  std::unique_ptr<Planner> planner;
  PlannerLimits limits;
  int64_t now_ns = 1, free_blocks = 1000, leaving_blocks = 0, swap_tokens = 0;
  const CostModel* cost = nullptr;
  std::vector<std::unique_ptr<Sequence>> streams;
  std::vector<const Sequence*> waiting, running;

 private:
  Sequence& make(RequestId id, int64_t prompt, int64_t generated, int64_t max_total) {
    streams.push_back(std::make_unique<Sequence>());
    Sequence& s = *streams.back();
    s.id = id;
    s.arrival = static_cast<int64_t>(id);
    s.tokens.assign(static_cast<size_t>(prompt + generated), 1);
    s.prompt_tokens = prompt;
    s.max_total = max_total;
    return s;
  }
  int32_t next_block_ = 0;
};

}  // namespace millrace::testing
