// Generated loads: arrivals, lengths and shared prefixes are drawn from distributions. Every draw is a function of the
// seed and the request's index.
//
// A load "gen:key=value,..." can be used wherever a trace's path can:
//   gen:requests=200,rate=4,arrivals=gamma,burstiness=0.3,prompt=lognormal:5.5:0.7,output=pareto:1.1:8:2048
#pragma once

#include "base/options.h"
#include "workload/arrivals.h"
#include "workload/random.h"

namespace millrace {

// A distribution of lengths: fixed:N, uniform:MIN:MAX, lognormal:MU:SIGMA (of the natural logarithm), or
// pareto:ALPHA:MIN:MAX (bounded, heavy-tailed). Two names are fits to the 2,026 ShareGPT requests of AIBrix's 8-minute
// workload: sharegpt_prompt is lognormal:5.487:0.671 (workload: mean 294, median 264, p99 790), and sharegpt_output is
// lognormal:3.587:1.223 (workload: mean 73, median 34, p99 562).
class LengthDistribution {
 public:
  static Result<LengthDistribution> parse(const std::string& name, const std::string& text);  // `name` for errors
  int64_t draw(ItemDraws& random) const;  // >= 1, <= kMaxTraceTokens

 private:
  enum class Kind { fixed, uniform, lognormal, pareto };
  Kind kind_ = Kind::fixed;
  double a_ = 1, b_ = 1, c_ = 1;
};

const std::vector<OptionSpec>& generator_schema();

// Generates a load. `text`: "key=value,...". Errors: user.
Result<std::vector<WorkloadRequest>> generate_workload(std::string_view text);

// Reads the trace at path `what`, or generates the load if `what` is "gen:...". A generated load uses only limit, scale
// and rate of `options`.
Result<std::vector<WorkloadRequest>> load_workload(const std::string& what, const TraceOptions& options);

}  // namespace millrace
