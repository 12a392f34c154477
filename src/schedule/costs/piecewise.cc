// Measured steps: a sum of curves, each piecewise linear and extrapolated beyond its last point with the last slope.
//
//   seconds = slowdown * (tokens(T) + outputs(O) + keys(K) + pairs(P))        of a step's StepShape
//
// The curves are the undisturbed step times; slowdown is the average step time relative to them: a shared machine stops
// every now and then, and queues depend on the average. 1 when absent.
//
//   {"kind": "piecewise", "tokens": {"at": [1, 8, 64], "seconds": [0.02, 0.021, 0.09]},
//    "outputs": {...}, "keys": {...}, "pairs": {...},
//    "kv_bytes_per_token": 65536, "swap_bandwidth": 8e9, "disk_bandwidth": 1e9, "disk_overhead": 0.0002}
//
// Only "tokens" is required. `millrace bench --calibrate` writes such files (schedule/cost_fit.h).
#include <algorithm>

#include "schedule/costs/fields.h"

namespace millrace {
namespace {

struct Curve {
  std::vector<double> at, seconds;  // empty: 0 everywhere

  double operator()(double x) const {
    if (at.size() < 2 || x <= at.front()) return seconds.empty() ? 0 : seconds.front();
    const auto above = static_cast<size_t>(std::ranges::upper_bound(at, x) - at.begin());
    const size_t high = std::min(above, at.size() - 1), low = high - 1;
    return seconds[low] + (seconds[high] - seconds[low]) * (x - at[low]) / (at[high] - at[low]);
  }
};

class PiecewiseCost final : public CostModel {
 public:
  Curve tokens, outputs, keys, pairs;
  double kv_bytes_per_token = 0, swap_bandwidth = 1, disk_bandwidth = 1, disk_overhead = 0, slowdown = 1;

  double step_seconds(const StepShape& shape) const override {
    const double sum = tokens(shape.whole_tokens()) + outputs(static_cast<double>(shape.outputs)) +
                       keys(static_cast<double>(shape.keys)) + pairs(shape.pairs);
    return std::max(1e-9, slowdown * sum);
  }
  double swap_seconds(int64_t count) const override {
    return static_cast<double>(count) * kv_bytes_per_token / swap_bandwidth;
  }
  double load_seconds(int64_t count) const override {
    return disk_overhead + static_cast<double>(count) * kv_bytes_per_token / disk_bandwidth;
  }
};

Result<Curve> read_curve(const CostFields& fields, const char* name) {
  const auto found = fields.json.find(name);
  if (found == fields.json.end()) return Curve{};
  if (!found->is_object())
    return Error::user(
        fmt::format("{}: cost model's '{}' must be an object with 'at' and 'seconds'", fields.source, name));
  const CostFields own{*found, fmt::format("{}: {}", fields.source, name)};
  Curve curve;
  MILLRACE_TRY(curve.at, own.numbers("at", 0, 1e18));
  MILLRACE_TRY(curve.seconds, own.numbers("seconds", 0, 1e5));
  if (curve.at.size() != curve.seconds.size())
    return Error::user(fmt::format("{}: cost model's 'seconds' and 'at' must have equal length", own.source));
  for (size_t i = 1; i < curve.at.size(); ++i)
    if (curve.at[i] <= curve.at[i - 1])
      return Error::user(fmt::format("{}: cost model's 'at' must be ascending", own.source));
  return curve;
}

}  // namespace

Result<std::unique_ptr<CostModel>> make_piecewise_cost(const CostFields& fields) {
  auto cost = std::make_unique<PiecewiseCost>();
  if (!fields.json.contains("tokens")) return Error::user(fmt::format("{}: cost model has no 'tokens'", fields.source));
  MILLRACE_TRY(cost->tokens, read_curve(fields, "tokens"));
  MILLRACE_TRY(cost->outputs, read_curve(fields, "outputs"));
  MILLRACE_TRY(cost->keys, read_curve(fields, "keys"));
  MILLRACE_TRY(cost->pairs, read_curve(fields, "pairs"));
  MILLRACE_TRY(cost->kv_bytes_per_token, fields.number("kv_bytes_per_token", 0, 1e9, 0));
  MILLRACE_TRY(cost->swap_bandwidth, fields.number("swap_bandwidth", 1e6, 1e16, 16e9));
  MILLRACE_TRY(cost->disk_bandwidth, fields.number("disk_bandwidth", 1e5, 1e16, cost->swap_bandwidth));
  MILLRACE_TRY(cost->slowdown, fields.number("slowdown", 1, 100, 1));
  MILLRACE_TRY(cost->disk_overhead, fields.number("disk_overhead", 0, 10, 0));
  return std::unique_ptr<CostModel>(std::move(cost));
}

}  // namespace millrace
