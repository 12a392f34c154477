// FairnessMeter: measures the largest difference in service between tenants while all of them have waiting requests
// (Sheng et al., 2024).
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "simulate/simulation.h"

namespace millrace {

inline constexpr double kAnswerService = 2;  // cost of one answer token; a prompt token costs 1

// For two tenants a and b, and an interval in which every tenant has waiting requests, the difference is the range
// (maximum - minimum) of a's service minus b's service since the interval began.
class FairnessMeter {
 public:
  void arrived(const std::string& tenant) { ++tenants_[tenant].waiting; }
  void started(const std::string& tenant) { --tenants_[tenant].waiting; }
  void serve(const std::string& tenant, double service) { tenants_[tenant].served += service; }

  void tick(double now) {
    now = std::max(now, last_);  // steps of several nodes do not end in order
    const bool backlogged =
        tenants_.size() > 1 && std::ranges::all_of(tenants_, [](const auto& t) { return t.second.waiting > 0; });
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

}  // namespace millrace
