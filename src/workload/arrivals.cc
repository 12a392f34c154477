#include "workload/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workload/random.h"

namespace millrace {

void order_by_arrival(std::vector<WorkloadRequest>& requests) {
  std::ranges::stable_sort(requests, {}, &WorkloadRequest::arrival_seconds);
  const double first = requests.empty() ? 0 : requests.front().arrival_seconds;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_seconds -= first;
    requests[i].id = i;
  }
}

Result<void> scale_arrivals(std::vector<WorkloadRequest>& requests, double scale, double rate) {
  double factor = 1 / scale;
  if (rate > 0 && requests.size() > 1) {
    const double last = requests.back().arrival_seconds;
    if (!(last > 0))
      return Error::user("rate: the trace has no arrival times to rescale; generate them with --arrivals poisson");
    factor = static_cast<double>(requests.size() - 1) / rate / last;
  }
  for (auto& request : requests) request.arrival_seconds *= factor;
  return {};
}

Result<ArrivalSpec::Kind> find_arrival_kind(const std::string& name) {
  if (name == "poisson") return ArrivalSpec::Kind::poisson;
  if (name == "gamma") return ArrivalSpec::Kind::gamma;
  if (name == "uniform") return ArrivalSpec::Kind::uniform;
  return Error::user(fmt::format("arrivals: unknown '{}'; available: poisson, gamma, uniform", name));
}

void draw_arrivals(std::vector<WorkloadRequest>& requests, const ArrivalSpec& spec) {
  double now = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_seconds = now;
    requests[i].id = i;
    ItemDraws random(spec.seed, ItemDraws::Purpose::arrivals, i);
    double gap = 1;  // with mean 1
    if (spec.kind == ArrivalSpec::Kind::poisson) gap = random.exponential();
    if (spec.kind == ArrivalSpec::Kind::gamma) gap = random.gamma(spec.burstiness) / spec.burstiness;
    now += gap / spec.rate;
  }
}

}  // namespace millrace
