// LoopContext: what all parts of the engine's loop share: the executor with its KV pool, the clock, the planner and its
// cost model, the limits of a step, and the statistics that each part adds to. EngineCore owns it and destroys it last.
#pragma once

#include <memory>

#include "base/clock.h"
#include "exit/exit_gate.h"
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

  std::shared_ptr<const ExitGate> exit;  // of requests that name none; null: they run every layer

  std::shared_ptr<const DocumentContext> documents;  // of requests that name none; null: as any other token
  std::string documents_name;                        // as the options name it
  Facts facts;                                       // of the engine, without the evictor and the context of a request

  KvPool& kv() const { return executor->home().kv(); }
  // Null: the request keeps all its keys and values. Errors: user.
  Result<std::shared_ptr<const EvictionRule>> eviction_rule(const Request& request) const {
    std::shared_ptr<const EvictionRule> rule = evictor;
    if (!request.evictor.empty()) {
      MILLRACE_TRY(rule, make_eviction_rule(request.evictor));
    }
    MILLRACE_TRY(const auto context, context_of(request));
    if (!rule || !context || context->encoder()) return rule;
    auto joining = std::make_shared<EvictionRule>(*rule);
    joining->joined = request.documents.back().end;
    return std::shared_ptr<const EvictionRule>(std::move(joining));
  }
  // Null: the request's tokens run every layer. Errors: user.
  Result<std::shared_ptr<const ExitGate>> exit_gate(const Request& request) const {
    std::shared_ptr<const ExitGate> gate = exit;
    if (!request.exit.empty()) {
      MILLRACE_TRY(gate, make_exit_gate(request.exit));
    }
    const int64_t layers = executor->limits().layers;
    if (!gate || layers == 0) return gate;
    MILLRACE_TRY_VOID(gate->check(layers));
    if (gate->stored(layers) == layers && gate->next(0) >= layers) gate = nullptr;
    return gate;
  }
  // Layers whose keys and values the gate's streams store; 0: all, or the number of layers is unknown.
  int64_t stored_layers(const ExitGate* gate) const {
    const int64_t layers = executor->limits().layers;
    const int64_t stored = gate && layers > 0 ? gate->stored(layers) : layers;
    return stored < layers ? stored : 0;
  }
  const std::string& context_name(const Request& request) const {
    return request.document_context.empty() ? documents_name : request.document_context;
  }
  // Null: documents are tokens like any others. Errors: user.
  Result<std::shared_ptr<const DocumentContext>> context_of(const Request& request) const {
    std::shared_ptr<const DocumentContext> context = documents;
    if (!request.document_context.empty()) {
      MILLRACE_TRY(context, make_document_context(request.document_context));
    }
    return request.documents.empty() ? nullptr : context;
  }
  int64_t now() const { return clock->now_ns(); }
  int64_t context() const { return executor->limits().context; }
  void observe(ScheduleEvent::Kind kind, const Sequence& stream) const { planner->observe({kind, &stream}); }
};

}  // namespace millrace
