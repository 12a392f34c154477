// Arrival times: generating, sorting and rescaling them.
#pragma once

#include "workload/request.h"

namespace millrace {

// Sorts by arrival (stable), shifts the first arrival to 0 and numbers the requests.
void order_by_arrival(std::vector<WorkloadRequest>& requests);

// Compresses arrivals by a factor of `scale`; with rate > 0, instead rescales them so that (n - 1) / last arrival is
// `rate`. Errors: user, if there is a rate for requests without arrival times.
Result<void> scale_arrivals(std::vector<WorkloadRequest>& requests, double scale, double rate);

// The arrival process. Gaps have mean 1 / rate; gamma-distributed gaps have the shape `burstiness`, as in vLLM's
// benchmark: below 1 is burstier than Poisson, 1 is Poisson, and the coefficient of variation is burstiness^-0.5.
struct ArrivalSpec {
  enum class Kind { poisson, gamma, uniform };
  Kind kind = Kind::poisson;
  double rate = 1;        // requests per second; infinity: all at once
  double burstiness = 1;  // gamma only
  uint64_t seed = 0;
};

Result<ArrivalSpec::Kind> find_arrival_kind(const std::string& name);  // poisson, gamma, uniform

// Assigns new arrival times to the requests in their current order. The first one arrives at 0.
void draw_arrivals(std::vector<WorkloadRequest>& requests, const ArrivalSpec& spec);

}  // namespace millrace
