#include "engine/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/engine_core.h"
#include "engine/simulated_executor.h"

namespace millrace {
namespace {

constexpr int64_t kMostIdleSteps = 1'000'000;
constexpr double kAnswerService = 2;  // of one answer token, beside 1 of a prompt token

// The largest difference of two tenants' service over any interval in which every tenant has somebody waiting: the range
// of (a's service - b's) since that state began.
class FairnessMeter {
 public:
  void arrived(const std::string& tenant) { ++tenants_[tenant].waiting; }
  void started(const std::string& tenant) { --tenants_[tenant].waiting; }
  void serve(const std::string& tenant, double service) { tenants_[tenant].served += service; }

  void tick(double now) {
    const bool backlogged = tenants_.size() > 1 && std::ranges::all_of(tenants_, [](const auto& t) { return t.second.waiting > 0; });
    if (!backlogged) {
      ranges_.clear();
      last_ = now;
      return;
    }
    out_.backlogged_seconds += now - last_;
    last_ = now;
    size_t pair = 0;
    for (auto a = tenants_.begin(); a != tenants_.end(); ++a) {
      for (auto b = std::next(a); b != tenants_.end(); ++b, ++pair) {
        const double difference = a->second.served - b->second.served;
        if (pair == ranges_.size()) ranges_.push_back({difference, difference});
        Range& range = ranges_[pair];
        range.low = std::min(range.low, difference);
        range.high = std::max(range.high, difference);
        out_.difference = std::max(out_.difference, range.high - range.low);
      }
    }
  }

  Fairness result() const {
    Fairness out = out_;
    for (const auto& [name, tenant] : tenants_) out.service[name] = tenant.served;
    return out;
  }

 private:
  struct Tenant {
    int64_t waiting = 0;
    double served = 0;
  };
  struct Range {
    double low = 0, high = 0;
  };
  std::map<std::string, Tenant> tenants_;
  std::vector<Range> ranges_;
  double last_ = 0;
  Fairness out_;
};

class Simulation {
 public:
  Simulation(const SimulatedLoad& load, double stop_seconds) : load_(load), stop_seconds_(stop_seconds) {}

  Result<void> start(std::unique_ptr<CostModel> cost, const EngineOptions& options) {
    MILLRACE_TRY(auto executor, SimulatedExecutor::create(std::move(cost), clock_, options));
    executor_ = executor.get();
    MILLRACE_TRY(core_, EngineCore::create(std::move(executor), options, &clock_));
    result_.requests.resize(static_cast<size_t>(load_.requests));
    last_token_.assign(static_cast<size_t>(load_.requests), -1.0);
    started_.assign(static_cast<size_t>(load_.requests), false);
    if (load_.requests > 0) offset_ = load_.arrival_seconds(0);
    return {};
  }

  Result<SimulationResult> run(const std::function<bool(int64_t)>& progress) {
    for (int64_t steps = 0;; ++steps) {
      take_in();
      if (core_->idle() && next_ == load_.requests) break;
      if (stop_seconds_ > 0 && now() >= stop_seconds_) break;
      const bool moved = !core_->idle() && step();
      if (!moved && !wait()) return Error::internal("simulation: streams wait for nothing");
      if (idle_steps_ > kMostIdleSteps) return Error::internal("simulation: streams displace each other without end");
      if (steps % 1024 == 0 && progress && !progress(ended_)) return Error::cancelled("simulation: interrupted");
    }
    result_.stats = core_->stats();
    result_.seconds = now();
    result_.mean_running = result_.busy_seconds > 0 ? running_seconds_ / result_.busy_seconds : 0;
    result_.fairness = fairness_.result();
    return std::move(result_);
  }

 private:
  double now() const { return static_cast<double>(clock_.now_ns() - 1) * 1e-9; }
  double arrival(int64_t i) const { return load_.arrival_seconds(i) - offset_; }

  void take_in() {
    for (; next_ < load_.requests && arrival(next_) <= now(); ++next_) {
      SimulatedRequest& out = result_.requests[static_cast<size_t>(next_)];
      Request request = load_.request(next_);
      out.arrival = arrival(next_);
      out.tenant = request.tenant;
      out.prompt_tokens = static_cast<int64_t>(request.prompt.size());
      if (auto added = core_->add(static_cast<RequestId>(next_ + 1), std::move(request)); !added.ok()) {
        out.finish = FinishReason::error;
        out.refused = added.error().message;
        out.end = now();
        ++ended_;
      } else {
        fairness_.arrived(out.tenant);
      }
    }
  }

  // False: nothing ran.
  bool step() {
    const double before = now();
    events_.clear();
    const StepPlan& plan = core_->step(events_);
    for (RequestId id : plan.admitted) {
      const auto index = static_cast<size_t>(request_of(id) - 1);
      if (answer_of(id) > 0 || started_[index]) continue;
      started_[index] = true;
      fairness_.started(result_.requests[index].tenant);
      fairness_.serve(result_.requests[index].tenant, static_cast<double>(result_.requests[index].prompt_tokens));
    }
    const double after = now();
    const auto running = core_->stats().running;
    running_seconds_ += static_cast<double>(running) * (after - before);
    result_.busy_seconds += after - before;
    result_.most_running = std::max(result_.most_running, running);
    for (const TokenEvent& event : events_) take(event, after);
    fairness_.tick(after);
    idle_steps_ = plan.chunks.empty() ? idle_steps_ + 1 : 0;
    return !plan.empty() || !events_.empty();
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
      fairness_.serve(out.tenant, kAnswerService);
    }
    if (event.finish == FinishReason::none) return;
    if (!started_[index]) fairness_.started(out.tenant);  // ended while it waited
    out.finish = event.finish;
    out.end = now;
    out.cached_tokens = event.timings.cached_tokens;
    out.generated_tokens += event.timings.generated_tokens;
    out.preemptions += event.timings.preemptions;
    ended_ += event.last;
  }

  // To the next arrival or the end of the next move. False: there is none.
  bool wait() {
    int64_t next = std::numeric_limits<int64_t>::max();
    if (next_ < load_.requests) next = static_cast<int64_t>(arrival(next_) * 1e9) + 2;
    if (const int64_t move = executor_->next_move_ns()) next = std::min(next, move);
    if (next == std::numeric_limits<int64_t>::max()) return false;
    clock_.advance_ns(std::max<int64_t>(1, next - clock_.now_ns()));
    return true;
  }

  const SimulatedLoad& load_;
  double stop_seconds_;
  ManualClock clock_;
  SimulatedExecutor* executor_ = nullptr;
  std::unique_ptr<EngineCore> core_;
  SimulationResult result_;
  FairnessMeter fairness_;
  std::vector<TokenEvent> events_;
  std::vector<double> last_token_;  // of each request
  std::vector<bool> started_;
  int64_t next_ = 0, ended_ = 0, idle_steps_ = 0;
  double offset_ = 0, running_seconds_ = 0;
};

}  // namespace

Result<SimulationResult> simulate(const SimulatedLoad& load, std::unique_ptr<CostModel> cost, const EngineOptions& options,
                                  double stop_seconds, const std::function<bool(int64_t)>& progress) {
  Simulation simulation(load, stop_seconds);
  MILLRACE_TRY_VOID(simulation.start(std::move(cost), options));
  return simulation.run(progress);
}

}  // namespace millrace
