#include "schedule/cost_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/ordered_json.h"

namespace millrace {
namespace {

constexpr int kReweights = 6;      // rounds of reweighting outliers
constexpr int kSweeps = 20000;     // of coordinate descent, at most
constexpr double kOutlier = 0.05;  // relative error above which a step counts less

// One curve of the model as its increments: the seconds added by each piece between two knots, none of them negative.
struct Terms {
  const char* name;
  double (*of)(const StepShape&);
  bool constant;  // the curve begins above 0, at its first knot
  std::vector<double> knots;
  size_t first = 0;  // its index among all unknowns

  size_t unknowns() const { return knots.size() - 1 + constant; }
  // The fraction of each increment that applies to a step: 1 when the step is beyond the piece.
  void fill(const StepShape& shape, std::vector<double>& row) const {
    const double x = of(shape);
    size_t at = first;
    if (constant) row[at++] = 1;
    for (size_t i = 0; i + 1 < knots.size(); ++i) {
      const bool last = i + 2 == knots.size();
      const double part = (x - knots[i]) / (knots[i + 1] - knots[i]);
      row[at++] = last ? std::max(0.0, part) : std::clamp(part, 0.0, 1.0);
    }
  }
};

// Knots at powers of `base` up to the largest measured value.
std::vector<double> knots_up_to(double first, double base, double most) {
  std::vector<double> knots = {first};
  for (double x = std::max(1.0, first) * base; x < most; x *= base) knots.push_back(x);
  if (most > knots.back()) knots.push_back(most);
  if (knots.size() < 2) knots.push_back(first + 1);
  return knots;
}

double tokens_of(const StepShape& s) { return static_cast<double>(s.tokens); }
double outputs_of(const StepShape& s) { return static_cast<double>(s.outputs); }
double keys_of(const StepShape& s) { return static_cast<double>(s.keys); }
double pairs_of(const StepShape& s) { return s.pairs; }

std::vector<Terms> make_terms(std::span<const MeasuredStep> steps) {
  auto most = [&](double (*of)(const StepShape&)) {
    double out = 0;
    for (const MeasuredStep& step : steps) out = std::max(out, of(step.shape));
    return out;
  };
  std::vector<Terms> terms = {
      {"tokens", tokens_of, true, knots_up_to(1, 2, most(tokens_of))},
      {"outputs", outputs_of, false, knots_up_to(0, 4, most(outputs_of))},
      {"keys", keys_of, false, {0, std::max(1.0, most(keys_of) / 4), std::max(2.0, most(keys_of))}},
      {"pairs", pairs_of, false, {0, std::max(1.0, most(pairs_of))}}};
  size_t first = 0;
  for (Terms& t : terms) {
    t.first = first;
    first += t.unknowns();
  }
  return terms;
}

// Least squares with unknowns >= 0: minimizes sum of weight * (row x - 1)^2. Coordinate descent on the normal
// equations.
std::vector<double> solve(const std::vector<std::vector<double>>& rows, const std::vector<double>& weights,
                          std::vector<double> x) {
  const size_t n = x.size();
  std::vector<double> gram(n * n), right(n);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < n; ++i) {
      right[i] += weights[r] * rows[r][i];
      for (size_t j = 0; j < n; ++j) gram[i * n + j] += weights[r] * rows[r][i] * rows[r][j];
    }
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    for (size_t i = 0; i < n; ++i) {
      if (gram[i * n + i] <= 0) continue;
      double gradient = right[i];
      for (size_t j = 0; j < n; ++j) gradient -= gram[i * n + j] * x[j];
      const double next = std::max(0.0, x[i] + gradient / gram[i * n + i]);
      moved = std::max(moved, std::fabs(next - x[i]) * std::sqrt(gram[i * n + i]));
      x[i] = next;
    }
    if (moved < 1e-9) break;
  }
  return x;
}

std::vector<double> fit(const std::vector<Terms>& terms, std::span<const MeasuredStep> steps) {
  const size_t unknowns = terms.back().first + terms.back().unknowns();
  std::vector<std::vector<double>> rows;  // divided by the measured time, so that the right side is 1
  for (const MeasuredStep& step : steps) {
    auto& row = rows.emplace_back(unknowns);
    for (const Terms& t : terms) t.fill(step.shape, row);
    for (double& value : row) value /= step.seconds;
  }
  std::vector<double> x(unknowns), weights(steps.size(), 1.0);
  for (int round = 0; round < kReweights; ++round) {
    x = solve(rows, weights, std::move(x));
    for (size_t r = 0; r < rows.size(); ++r) {
      double predicted = 0;
      for (size_t i = 0; i < unknowns; ++i) predicted += rows[r][i] * x[i];
      weights[r] = kOutlier / std::max(kOutlier, std::fabs(predicted - 1));
    }
  }
  return x;
}

}  // namespace

Result<std::string> fit_cost_model(std::span<const MeasuredStep> steps, const SwapSpeed& swap, const DiskSpeed& disk) {
  if (steps.size() < 8) return Error::user(fmt::format("cost model: {} measured steps are too few", steps.size()));
  for (const MeasuredStep& step : steps)
    if (!(step.seconds > 0 && step.seconds < 1e5) || step.shape.tokens < 1)
      return Error::user(fmt::format("cost model: a measured step took {} s", step.seconds));
  const auto terms = make_terms(steps);
  const auto rises = fit(terms, steps);
  nlohmann::ordered_json out = {{"kind", "piecewise"}};
  for (const Terms& t : terms) {
    std::vector<double> seconds = {t.constant ? rises[t.first] : 0.0};
    for (size_t i = 0; i + 1 < t.knots.size(); ++i) seconds.push_back(seconds.back() + rises[t.first + t.constant + i]);
    out[t.name] = {{"at", t.knots}, {"seconds", seconds}};
  }
  if (swap.bytes_per_token > 0) out["kv_bytes_per_token"] = swap.bytes_per_token;
  if (swap.bytes_per_second > 0) {
    out["swap_bandwidth"] = std::clamp(swap.bytes_per_second, 1e6, 1e16);
  }
  if (disk.bytes_per_second > 0) {
    out["disk_bandwidth"] = std::clamp(disk.bytes_per_second, 1e5, 1e16);
    out["disk_overhead"] = std::clamp(disk.overhead_seconds, 0.0, 10.0);
  }
  return out.dump(1);
}

Result<DiskSpeed> fit_disk_speed(std::span<const std::pair<double, double>> bytes_and_seconds) {
  std::map<double, std::vector<double>> sizes;
  for (const auto& [bytes, seconds] : bytes_and_seconds) {
    if (!(bytes > 0 && seconds > 0 && seconds < 1e5))
      return Error::user(fmt::format("disk: {} bytes took {} s", bytes, seconds));
    sizes[bytes].push_back(seconds);
  }
  if (sizes.size() < 2) return Error::user("disk: loads of at least two sizes must be measured");
  auto median = [](std::vector<double>& times) {
    std::ranges::sort(times);
    return times[times.size() / 2];
  };
  const double few = sizes.begin()->first, many = sizes.rbegin()->first;
  const double fast = median(sizes.begin()->second), slow = median(sizes.rbegin()->second);
  if (!(slow > fast)) return DiskSpeed{many / slow, 0};  // noise: only the speed of large loads is known
  const double rate = (slow - fast) / (many - few);
  return DiskSpeed{1 / rate, std::max(0.0, fast - rate * few)};
}

std::vector<double> cost_errors(const CostModel& cost, std::span<const MeasuredStep> steps) {
  std::vector<double> out;
  for (const MeasuredStep& step : steps)
    out.push_back(std::fabs(cost.step_seconds(step.shape) - step.seconds) / step.seconds);
  return out;
}

}  // namespace millrace
