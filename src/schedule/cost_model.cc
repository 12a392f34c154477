#include "schedule/cost_model.h"

#include <fstream>
#include <iterator>

#include "base/json_text.h"
#include "schedule/costs/fields.h"

namespace millrace {

double CostModel::prefill_seconds(int64_t count, int64_t chunk) const {
  double total = 0;
  for (int64_t first = 0; first < count; first += chunk) {
    StepShape shape;
    shape.add(first, std::min(chunk, count - first), first + chunk >= count);
    total += step_seconds(shape);
  }
  return total;
}

Result<std::unique_ptr<CostModel>> parse_cost_model(const std::string& text, const std::string& source) {
  const auto json = parse_json<nlohmann::json>(text);
  if (json.is_discarded() || !json.is_object())
    return Error::user(fmt::format("{}: cost model must be a JSON object", source));
  const auto kind = json.find("kind");
  const CostFields fields{json, source};
  if (kind != json.end() && *kind == "analytic") return make_analytic_cost(fields);
  if (kind != json.end() && *kind == "table") return make_table_cost(fields);
  if (kind != json.end() && *kind == "piecewise") return make_piecewise_cost(fields);
  if (kind != json.end() && *kind == "workers") return make_workers_cost(fields);
  return Error::user(
      fmt::format("{}: cost model's 'kind' must be \"analytic\", \"piecewise\", \"table\" or \"workers\"", source));
}

Result<std::unique_ptr<CostModel>> load_cost_model(const std::string& path_or_name) {
  if (const char* json = builtin_cost(path_or_name)) return parse_cost_model(json, path_or_name);
  constexpr size_t kMax = 16 << 20;
  std::ifstream file(path_or_name, std::ios::binary);
  if (!file) {
    const std::string message =
        fmt::format("cost model: no file {}; built-in models: {}", path_or_name, builtin_cost_names());
    return path_or_name.find_first_of("/.") == std::string::npos ? Error::user(message) : Error::corrupt(message);
  }
  std::string text(kMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMax) return Error::corrupt(fmt::format("{}: cost model is larger than 16 MB", path_or_name));
  auto model = parse_cost_model(text, path_or_name);
  if (!model.ok() && model.error().kind == ErrorKind::user) return Error::corrupt(model.error().message);
  return model;
}

}  // namespace millrace
