// LoopContext: what all parts of the engine's loop share: the executor with its KV pool, the clock, the planner and its
// cost model, the limits of a step, and the statistics that each part adds to. EngineCore owns it and destroys it last.
#pragma once

#include <memory>

#include "base/clock.h"
#include "millrace/engine.h"
#include "run/executor.h"
#include "schedule/planner.h"

namespace millrace {

struct LoopContext {
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Planner> planner;
  std::unique_ptr<CostModel> own_cost;  // null: the executor brings its own
  CostModel* cost = nullptr;
  SteadyClock steady_clock;
  const Clock* clock = nullptr;
  PlannerLimits limits;
  EngineStats stats;
  std::shared_ptr<const EvictionRule> evictor;  // of requests that name none; null: they keep all

  std::shared_ptr<const DocumentContext> documents;  // of requests that name none; null: as any other token
  std::string documents_name;                        // as the options name it
  Facts facts;                                       // of the engine, without the evictor and the context of a request

  KvPool& kv() const { return executor->home().kv(); }
  int64_t now() const { return clock->now_ns(); }
  int64_t context() const { return executor->limits().context; }
  void observe(ScheduleEvent::Kind kind, const Sequence& stream) const { planner->observe({kind, &stream}); }
};

}  // namespace millrace
