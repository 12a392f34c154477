// Measured steps: seconds over a grid of (tokens that run, keys that are read), interpolated linearly and extrapolated
// beyond the last lines.
//
//   {"kind": "table", "tokens": [1, 8, 64, 512], "keys": [0, 4096, 65536], "kv_bytes_per_token": 65536,
//    "seconds": [[0.02, 0.021, 0.03], ...one row a number of tokens...], "swap_bandwidth": 8e9,
//    "disk_bandwidth": 3e9}
#include <algorithm>

#include "schedule/costs/fields.h"

namespace millrace {
namespace {

class TableCost final : public CostModel {
 public:
  std::vector<double> tokens, keys, seconds;  // seconds: [tokens][keys]
  double kv_bytes_per_token = 0, swap_bandwidth = 1, disk_bandwidth = 1;

  double step_seconds(const StepShape& shape) const override {
    const Place t = find(tokens, shape.whole_tokens()), k = find(keys, static_cast<double>(shape.keys));
    const double low = mix(at(t.low, k.low), at(t.low, k.high), k.part);
    const double high = mix(at(t.high, k.low), at(t.high, k.high), k.part);
    return std::max(1e-9, mix(low, high, t.part));
  }
  double swap_seconds(int64_t count) const override {
    return static_cast<double>(count) * kv_bytes_per_token / swap_bandwidth;
  }
  double load_seconds(int64_t count) const override {
    return static_cast<double>(count) * kv_bytes_per_token / disk_bandwidth;
  }

 private:
  struct Place {
    size_t low = 0, high = 0;
    double part = 0;  // above 1 beyond the last line
  };
  static double mix(double a, double b, double part) { return a + (b - a) * part; }
  double at(size_t t, size_t k) const { return seconds[t * keys.size() + k]; }
  static Place find(const std::vector<double>& grid, double x) {
    if (grid.size() < 2 || x <= grid.front()) return {};
    const auto above = static_cast<size_t>(std::ranges::upper_bound(grid, x) - grid.begin());
    const size_t high = std::min(above, grid.size() - 1);
    return {high - 1, high, (x - grid[high - 1]) / (grid[high] - grid[high - 1])};
  }
};

}  // namespace

Result<std::unique_ptr<CostModel>> make_table_cost(const CostFields& fields) {
  auto cost = std::make_unique<TableCost>();
  MILLRACE_TRY(cost->tokens, fields.numbers("tokens", 0, 1e9));
  MILLRACE_TRY(cost->keys, fields.numbers("keys", 0, 1e12));
  for (const auto* grid : {&cost->tokens, &cost->keys}) {
    for (size_t i = 1; i < grid->size(); ++i)
      if ((*grid)[i] <= (*grid)[i - 1])
        return Error::user(fmt::format("{}: cost model's grid must be ascending", fields.source));
  }
  auto rows = fields.json.find("seconds");
  if (rows == fields.json.end() || !rows->is_array() || rows->size() != cost->tokens.size())
    return Error::user(fmt::format("{}: cost model's 'seconds' must have one row for each of its {} tokens",
                                   fields.source, cost->tokens.size()));
  for (const auto& row : *rows) {
    if (!row.is_array() || row.size() != cost->keys.size())
      return Error::user(fmt::format("{}: cost model's rows must have {} seconds", fields.source, cost->keys.size()));
    for (const auto& value : row) {
      if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() < 1e5))
        return Error::user(fmt::format("{}: cost model's seconds must be above 0 and below 1e5", fields.source));
      cost->seconds.push_back(value.get<double>());
    }
  }
  MILLRACE_TRY(cost->kv_bytes_per_token, fields.number("kv_bytes_per_token", 0, 1e9, 0));
  MILLRACE_TRY(cost->swap_bandwidth, fields.number("swap_bandwidth", 1e6, 1e16, 16e9));
  MILLRACE_TRY(cost->disk_bandwidth, fields.number("disk_bandwidth", 1e5, 1e16, 3e9));
  return std::unique_ptr<CostModel>(std::move(cost));
}

}  // namespace millrace
