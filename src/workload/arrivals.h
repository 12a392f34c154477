// Functions that generate, sort and rescale arrival times.
#pragma once

#include "workload/request.h"

namespace millrace {

// Sorts the requests by arrival (stable), shifts all arrivals so that the first is 0, and numbers the requests.
void order_by_arrival(std::vector<WorkloadRequest>& requests);

// Divides arrival times by `scale`. If `rate` > 0, instead rescales them so that (n - 1) / last arrival is `rate`.
// Errors: user (`rate` is set, but the requests have no arrival times).
Result<void> scale_arrivals(std::vector<WorkloadRequest>& requests, double scale, double rate);

// The arrival process. The mean gap between arrivals is 1 / rate. Gamma-distributed gaps have the shape parameter
// `burstiness`, as in vLLM's benchmark: 1 is a Poisson process, and smaller values are burstier. Their coefficient of
// variation is burstiness^-0.5.
struct ArrivalSpec {
  enum class Kind { poisson, gamma, uniform };
  Kind kind = Kind::poisson;
  double rate = 1;        // requests per second; infinity: all at once
  double burstiness = 1;  // gamma only
  uint64_t seed = 0;
};

Result<ArrivalSpec::Kind> find_arrival_kind(const std::string& name);  // poisson, gamma, uniform

// Assigns new arrival times to the requests in their current order. The first request arrives at 0.
void draw_arrivals(std::vector<WorkloadRequest>& requests, const ArrivalSpec& spec);

}  // namespace millrace
