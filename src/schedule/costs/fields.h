// Reads the numbers of a cost model's JSON and checks their bounds.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "base/ordered_json.h"
#include "schedule/cost_model.h"

namespace millrace {

struct CostFields {
  const nlohmann::json& json;
  std::string source;  // named in error messages

  Result<double> number(const char* name, double min, double max) const {
    auto found = json.find(name);
    if (found == json.end()) return Error::user(fmt::format("{}: cost model has no '{}'", source, name));
    return bounded(name, *found, min, max);
  }
  Result<double> number(const char* name, double min, double max, double missing) const {
    auto found = json.find(name);
    return found == json.end() ? Result<double>(missing) : bounded(name, *found, min, max);
  }
  Result<std::vector<double>> numbers(const char* name, double min, double max) const {
    auto found = json.find(name);
    if (found == json.end() || !found->is_array() || found->empty() || found->size() > 4096)
      return Error::user(fmt::format("{}: cost model's '{}' must be a list of 1 to 4096 numbers", source, name));
    std::vector<double> out;
    for (const auto& value : *found) {
      MILLRACE_TRY(double x, bounded(name, value, min, max));
      out.push_back(x);
    }
    return out;
  }

 private:
  Result<double> bounded(const char* name, const nlohmann::json& value, double min, double max) const {
    if (!value.is_number()) return Error::user(fmt::format("{}: cost model's '{}' must be a number", source, name));
    const double x = value.get<double>();
    if (!(x >= min && x <= max))
      return Error::user(
          fmt::format("{}: cost model's '{}' must be between {} and {}, got {}", source, name, min, max, x));
    return x;
  }
};

Result<std::unique_ptr<CostModel>> make_analytic_cost(const CostFields& fields);
Result<std::unique_ptr<CostModel>> make_workers_cost(const CostFields& fields);
Result<std::unique_ptr<CostModel>> make_table_cost(const CostFields& fields);
Result<std::unique_ptr<CostModel>> make_piecewise_cost(const CostFields& fields);

// Returns the JSON of a built-in machine; null: unknown name.
const char* builtin_cost(const std::string& name);
std::string builtin_cost_names();

}  // namespace millrace
