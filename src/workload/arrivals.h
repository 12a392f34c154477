// Arrival times: drawn, put in order, stretched.
#pragma once

#include "workload/request.h"

namespace millrace {

// Sorts by arrival (equal ones keep their order), makes the first one 0 and numbers the requests.
void order_by_arrival(std::vector<WorkloadRequest>& requests);

// `scale` times as dense; with rate > 0 instead stretched so that (n - 1) / last arrival is `rate`. Errors: user, when
// a rate is asked of requests that have no arrival times.
Result<void> scale_arrivals(std::vector<WorkloadRequest>& requests, double scale, double rate);

// How requests follow each other. Gaps have the mean 1 / rate; gamma-distributed ones have the shape `burstiness`, as
// in vLLM's benchmark: below 1 is burstier than Poisson, 1 is Poisson, and the coefficient of variation is
// burstiness^-0.5.
struct ArrivalSpec {
  enum class Kind { poisson, gamma, uniform };
  Kind kind = Kind::poisson;
  double rate = 1;        // requests a second; infinity: all at once
  double burstiness = 1;  // gamma only
  uint64_t seed = 0;
};

Result<ArrivalSpec::Kind> find_arrival_kind(const std::string& name);  // poisson, gamma, uniform

// Gives the requests new arrival times, in the order in which they stand. The first one arrives at 0.
void draw_arrivals(std::vector<WorkloadRequest>& requests, const ArrivalSpec& spec);

}  // namespace millrace
