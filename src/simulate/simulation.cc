#include "simulate/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"
#include "simulate/fairness_meter.h"

namespace millrace {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// One engine and its clock, which is at the end of its last step.
struct Node {
  ManualClock clock;
  SimulatedExecutor* executor = nullptr;
  std::unique_ptr<EngineCore> core;
  SimulatedNode figures;
  double running_seconds = 0;
  int64_t open_tokens = 0,
          open_requests = 0;  // of requests that the router sent here and that have not ended, as it knows

  double now() const { return static_cast<double>(clock.now_ns() - 1) * 1e-9; }
  // Never goes back.
  void advance_to(double seconds) {
    const int64_t to = static_cast<int64_t>(seconds * 1e9) + 2;
    if (to > clock.now_ns()) clock.advance_ns(to - clock.now_ns());
  }
  double next_move() const {
    const int64_t ns = executor->next_move_ns();
    return ns > 0 ? static_cast<double>(ns - 1) * 1e-9 : kNever;
  }
};

// The next event over all nodes is the next arrival or a step of the node whose clock is behind, so no node sees the
// future of another one.
class Simulation {
 public:
  Simulation(const SimulatedLoad& load, const SimulationOptions& options) : load_(load), options_(options) {}

  Result<void> start(std::vector<std::unique_ptr<CostModel>> costs, const EngineOptions& engine) {
    if (costs.empty()) return Error::user("simulation: needs a node");
    if (costs.size() > 1 && !engine.record_plans.empty()) return Error::user("plans: can be recorded of one node only");
    for (auto& cost : costs) {
      auto node = std::make_unique<Node>();
      MILLRACE_TRY(EnginePlan plan, SimulatedExecutor::make_plan(engine));
      if (options_.policy) plan.policy = options_.policy();
      MILLRACE_TRY(auto executor, SimulatedExecutor::create(std::move(cost), node->clock, plan, options_.model));
      node->executor = executor.get();
      plan.options.prefix_cache &= executor->shares_prefixes();
      MILLRACE_TRY(node->core, EngineCore::create(std::move(executor), std::move(plan), &node->clock));
      nodes_.push_back(std::move(node));
    }
    policy_name_ = options_.policy ? "under test" : engine.policy;
    const auto requests = static_cast<size_t>(load_.requests);
    result_.requests.resize(requests);
    last_token_.assign(requests, -1.0);
    started_.assign(requests, false);
    if (load_.requests > 0) offset_ = load_.arrival_seconds(0);
    for (int64_t i = 0; i < load_.closed_loop; ++i) slots_.push(0);
    return {};
  }

  Result<SimulationResult> run(const std::function<bool(int64_t)>& progress) {
    for (int64_t turns = 0;; ++turns) {
      Node* behind = nullptr;
      for (auto& node : nodes_)
        if (!node->core->idle() && (!behind || node->now() < behind->now())) behind = node.get();
      const double arrival = next_arrival(), step_at = behind ? behind->now() : kNever;
      const double next = std::min(arrival, step_at);
      if (next == kNever) break;
      if (options_.stop_seconds > 0 && next >= options_.stop_seconds) break;
      if (arrival <= step_at) {
        submit(arrival);
      } else if (!step(*behind)) {
        const double until = std::min(behind->next_move(), arrival);
        if (until == kNever) return live_lock(*behind, "streams are open, none of them runs, and nothing is under way");
        behind->advance_to(until);
      }
      if (behind && behind->core->planner().livelocks() > 0)
        return live_lock(*behind, behind->core->planner().last_livelock());
      if (turns % 1024 == 0 && progress && !progress(ended_)) return Error::cancelled("simulation: interrupted");
    }
    return finish();
  }

 private:
  Error live_lock(const Node& node, const std::string& why) const {
    const EngineStats stats = node.core->stats();
    return Error::internal(
        fmt::format("simulation: live-lock under policy {} at second {:.3f}: {}; {} preemptions and {} tokens computed "
                    "again so far",
                    policy_name_, node.now(), why, stats.preemptions, stats.recomputed_tokens));
  }

  double next_arrival() const {
    if (next_ == load_.requests) return kNever;
    if (load_.closed_loop > 0) return slots_.empty() ? kNever : slots_.top();
    return load_.arrival_seconds(next_) - offset_;
  }

  // The next request arrives at `now`.
  void submit(double now) {
    const int64_t index = next_++;
    if (load_.closed_loop > 0) slots_.pop();
    for (; !ends_.empty() && ends_.top().at <= now; ends_.pop()) close(ends_.top());
    SimulatedRequest& out = result_.requests[static_cast<size_t>(index)];
    Request request = load_.request(index);
    out.arrival = now;
    out.tenant = request.tenant;
    out.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    out.node = static_cast<int64_t>(route(index, request));
    Node& node = *nodes_[static_cast<size_t>(out.node)];
    if (node.core->idle()) node.advance_to(now);
    ++node.figures.requests;
    node.open_tokens += out.prompt_tokens;
    ++node.open_requests;
    if (auto added = node.core->add(static_cast<RequestId>(index + 1), std::move(request)); !added.ok()) {
      out.finish = FinishReason::error;
      out.refused = added.error().message;
      out.refusal = added.error().kind;
      out.end = now;
      end_request(out, now);
    } else {
      fairness_.arrived(out.tenant);
    }
  }

  size_t route(int64_t index, const Request& request) const {
    if (options_.route == SimulatedRoute::in_turn || nodes_.size() == 1)
      return static_cast<size_t>(index) % nodes_.size();
    size_t idlest = 0, best = 0;
    int64_t found = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (less_loaded(i, idlest)) idlest = i;
      if (options_.route != SimulatedRoute::prefix) continue;
      const int64_t cached = nodes_[i]->core->cached_tokens(request);
      if (cached > found || (cached == found && less_loaded(i, best))) best = i, found = cached;
    }
    return found > 0 && 2 * found >= static_cast<int64_t>(request.prompt.size()) ? best : idlest;
  }
  bool less_loaded(size_t a, size_t b) const {
    const Node &x = *nodes_[a], &y = *nodes_[b];
    return std::pair(x.open_tokens, x.open_requests) < std::pair(y.open_tokens, y.open_requests);
  }

  // False: nothing ran.
  bool step(Node& node) {
    const double before = node.now();
    events_.clear();
    const StepPlan& plan = node.core->step(events_);
    for (RequestId id : plan.admitted) {
      const auto index = static_cast<size_t>(request_of(id) - 1);
      if (answer_of(id) > 0 || started_[index]) continue;
      started_[index] = true;
      fairness_.started(result_.requests[index].tenant);
      fairness_.serve(result_.requests[index].tenant, static_cast<double>(result_.requests[index].prompt_tokens));
    }
    const double after = node.now();
    const auto running = node.core->stats().running;
    node.running_seconds += static_cast<double>(running) * (after - before);
    node.figures.busy_seconds += after - before;
    node.figures.most_running = std::max(node.figures.most_running, running);
    for (const TokenEvent& event : events_) take(event, after);
    fairness_.tick(after);
    return !plan.empty() || !events_.empty() || node.core->worked();
  }

  void take(const TokenEvent& event, double now) {
    const auto index = static_cast<size_t>(event.request - 1);
    SimulatedRequest& out = result_.requests[index];
    if (event.token >= 0) {
      double& last = last_token_[index];
      if (last >= 0) {
        result_.gaps.push_back(static_cast<float>(now - last));
        out.worst_gap = std::max(out.worst_gap, now - last);
      } else {
        out.first_token = now;
      }
      last = now;
      if (load_.keep_token_times) out.tokens.push_back(now);
      fairness_.serve(out.tenant, kAnswerService);
    }
    if (event.finish == FinishReason::none) return;
    if (!started_[index]) fairness_.started(out.tenant);  // ended while waiting
    out.finish = event.finish;
    out.end = now;
    out.cached_tokens = event.timings.cached_tokens;
    out.generated_tokens += event.timings.generated_tokens;
    out.preemptions += event.timings.preemptions;
    if (event.last) end_request(out, now);
  }

  void end_request(const SimulatedRequest& request, double now) {
    ++ended_;
    ends_.push({now, request.node, request.prompt_tokens});
    if (load_.closed_loop > 0) slots_.push(now);
    SimulatedNode& node = nodes_[static_cast<size_t>(request.node)]->figures;
    if (request.finish != FinishReason::stop && request.finish != FinishReason::length) return;
    ++node.completed;
    node.prompt_tokens += request.prompt_tokens;
    node.cached_tokens += request.cached_tokens;
    node.output_tokens += request.generated_tokens;
  }

  SimulationResult finish() {
    EngineStats& sum = result_.stats;
    double running_seconds = 0;
    for (auto& node : nodes_) {
      SimulatedNode& figures = node->figures;
      figures.stats = node->core->stats();
      figures.mean_running = figures.busy_seconds > 0 ? node->running_seconds / figures.busy_seconds : 0;
      for (auto field :
           {&EngineStats::running, &EngineStats::waiting, &EngineStats::kv_blocks, &EngineStats::kv_blocks_free,
            &EngineStats::kv_blocks_cached, &EngineStats::kv_bytes, &EngineStats::scratch_bytes, &EngineStats::steps,
            &EngineStats::prompt_tokens, &EngineStats::cached_tokens, &EngineStats::generated_tokens,
            &EngineStats::preemptions, &EngineStats::livelocks, &EngineStats::recomputed_tokens,
            &EngineStats::swapped_out_tokens, &EngineStats::swapped_in_tokens, &EngineStats::evicted_tokens})
        sum.*field += figures.stats.*field;
      using Copies = StateCacheStats;
      for (auto field :
           {&Copies::slots, &Copies::held, &Copies::stored, &Copies::replaced, &Copies::evicted, &Copies::hits})
        sum.state_cache.*field += figures.stats.state_cache.*field;
      result_.seconds = std::max(result_.seconds, node->now());
      result_.busy_seconds += figures.busy_seconds;
      result_.most_running += figures.most_running;
      running_seconds += node->running_seconds;
      result_.nodes.push_back(figures);
    }
    result_.mean_running = result_.busy_seconds > 0 ? running_seconds / result_.busy_seconds : 0;
    result_.fairness = fairness_.result();
    return std::move(result_);
  }

  struct End {
    double at = 0;
    int64_t node = 0, tokens = 0;
    bool operator>(const End& other) const { return at > other.at; }
  };
  // The router learns of an end at its time, not when the step with it was computed.
  void close(const End& end) {
    Node& node = *nodes_[static_cast<size_t>(end.node)];
    node.open_tokens -= end.tokens;
    --node.open_requests;
  }

  const SimulatedLoad& load_;
  SimulationOptions options_;
  std::vector<std::unique_ptr<Node>> nodes_;
  SimulationResult result_;
  FairnessMeter fairness_;
  std::vector<TokenEvent> events_;
  std::vector<double> last_token_;  // of each request
  std::vector<bool> started_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::priority_queue<double, std::vector<double>, std::greater<>> slots_;  // closed loop: when each slot became free
  int64_t next_ = 0, ended_ = 0;
  std::string policy_name_;
  double offset_ = 0;
};

}  // namespace

Result<SimulatedRoute> find_simulated_route(const std::string& name) {
  if (name == "in_turn") return SimulatedRoute::in_turn;
  if (name == "prefix") return SimulatedRoute::prefix;
  if (name == "least_loaded") return SimulatedRoute::least_loaded;
  return Error::user(fmt::format("route: unknown '{}'; available: in_turn, prefix, least_loaded", name));
}

Result<SimulationResult> simulate(const SimulatedLoad& load, std::vector<std::unique_ptr<CostModel>> costs,
                                  const EngineOptions& engine, const SimulationOptions& options,
                                  const std::function<bool(int64_t)>& progress) {
  Simulation simulation(load, options);
  MILLRACE_TRY_VOID(simulation.start(std::move(costs), engine));
  return simulation.run(progress);
}

Result<SimulationResult> simulate(const SimulatedLoad& load, std::unique_ptr<CostModel> cost,
                                  const EngineOptions& engine, double stop_seconds) {
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(std::move(cost));
  return simulate(load, std::move(costs), engine, {.stop_seconds = stop_seconds});
}

}  // namespace millrace
