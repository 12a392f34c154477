// Many requests at a time, as a server has them: in a closed loop of eight, or arriving as in a recorded trace. A round
// sends the whole load to one configuration; metrics are those of `millrace replay` (workload/metrics.h).
#include <fmt/format.h>

#include <algorithm>

#include "compare/suite_text.h"
#include "compare/suites/records.h"
#include "replay/replay_run.h"
#include "workload/request.h"

namespace millrace {
namespace {

constexpr int64_t kServeRequests = 32;
constexpr int64_t kServeInFlight = 8;
constexpr GoodputLimits kServeLimits = {.ttft = 1, .tpot = 0.1};  // seconds

class ServeRun final : public SuiteRun {
 public:
  ServeRun(std::span<const CompareConfig> configs, SuitePlan plan, std::vector<WorkloadRequest> load, bool arrivals)
      : configs_(configs), load_(std::move(load)), arrivals_(arrivals) {
    plan_ = std::move(plan);
    for (const WorkloadRequest& request : load_)
      longest_ = std::max(longest_, request.prompt_tokens + std::max<int64_t>(1, request.output_tokens));
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    const CompareConfig& of = configs_[config];
    if (!of.model) return Error::unsupported("only millrace's configurations are served here");
    ReplayOptions options;
    options.closed_loop = arrivals_ ? 0 : kServeInFlight;
    options.vocab = of.model->info().vocab;
    std::vector<std::vector<double>> out;
    for (size_t round = 0; round < items.size(); ++round) {
      // A new engine, whose prefix cache does not know this load.
      MILLRACE_TRY(const auto engine, make_compare_engine(of, kServeInFlight, longest_));
      bool stopped = false;
      const auto records = run_replay(*engine, load_, options, [&](int64_t, int64_t) {
        stopped |= !wanted();
        return !stopped;
      });
      if (stopped) return Error::cancelled("interrupted");
      const LoadMetrics metrics = measure_load(records, kServeLimits);
      if (metrics.completed == 0) return Error::internal("no request was answered: " + records.front().error);
      out.push_back({metrics.output_rate, 1000 * metrics.ttft.p50, 1000 * metrics.ttft.p99, 1000 * metrics.itl.p50,
                     1000 * metrics.itl.p99, metrics.goodput, static_cast<double>(metrics.failed)});
    }
    return out;
  }

 private:
  std::span<const CompareConfig> configs_;
  std::vector<WorkloadRequest> load_;
  bool arrivals_;
  int64_t longest_ = 1;
};

std::vector<WorkloadRequest> closed_load(const SuiteInput& input) {
  std::vector<WorkloadRequest> out;
  for (int64_t i = 0; i < (input.items > 0 ? input.items : kServeRequests); ++i)
    out.push_back({.id = static_cast<uint64_t>(i), .prompt_tokens = input.prompt, .output_tokens = input.generate});
  return out;
}

Result<std::unique_ptr<SuiteRun>> begin_serve(std::span<const CompareConfig> configs, const SuiteInput& input) {
  std::vector<WorkloadRequest> load = closed_load(input);
  if (!input.argument.empty()) {
    TraceOptions options;
    options.limit = input.items > 0 ? input.items : kServeRequests;
    MILLRACE_TRY(load, read_trace(input.argument, options));
    if (load.empty()) return Error::user(fmt::format("{}: has no requests", input.argument));
  }
  for (const CompareConfig& config : configs)
    for (const WorkloadRequest& request : load)
      if (config.model && request.prompt_tokens + request.output_tokens > compare_context(config))
        return Error::user(fmt::format("a request of {} tokens and an answer of {} do not fit the context of {}",
                                       request.prompt_tokens, request.output_tokens, compare_context(config)));
  SuitePlan plan{.name = "serve",
                 .metrics = {{"output_tokens_per_s", true, SuiteAverage::median},
                             {"ttft_p50_ms", false, SuiteAverage::median},
                             {"ttft_p99_ms", false, SuiteAverage::median},
                             {"itl_p50_ms", false, SuiteAverage::median},
                             {"itl_p99_ms", false, SuiteAverage::median},
                             {"goodput_requests_per_s", true, SuiteAverage::median},
                             {"failed_requests", false, SuiteAverage::median}},
                 .items = std::vector<std::string>(static_cast<size_t>(std::max<int64_t>(1, input.rounds))),
                 .timed = true,
                 .sight = {.quality = false}};
  std::vector<std::string> parts = {input.argument, std::to_string(input.threads)};
  for (const WorkloadRequest& request : load)
    parts.push_back(fmt::format("{} {} {}", request.arrival_seconds, request.prompt_tokens, request.output_tokens));
  plan.identity = identity_of(parts);
  return std::unique_ptr<SuiteRun>(
      std::make_unique<ServeRun>(configs, std::move(plan), std::move(load), !input.argument.empty()));
}

}  // namespace

const CompareSuite kServeSuite = {
    .name = "serve",
    .argument = "[TRACE]",
    .summary =
        "requests at once, eight in a closed loop or as a trace has them: TTFT, ITL, goodput (1 s, 100 ms a token)",
    .paper = "",
    .begin = begin_serve,
};

}  // namespace millrace
