#include "server/models/adapters.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/models/model_registry.h"

namespace millrace {

double AdapterScales::get(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = scales_.find(name);
  return found == scales_.end() ? 0 : found->second;
}

void AdapterScales::set(std::map<std::string, double> scales) {
  std::lock_guard lock(mutex_);
  scales_ = std::move(scales);
}

Field lora_field() {
  Field field{"lora", kJsonList, "the server's scales",
              "LoRA adapters as [{\"id\", \"scale\"}], with ids from /lora-adapters; adapters that are not listed "
              "are not used"};
  field.most = 64;
  field.set = [](const Json& value, GenerationRequest& params) -> std::optional<ApiError> {
    params.lora.emplace();
    for (const Json& one : value) {
      if (!one.is_object() || !one.contains("id") || !one["id"].is_number_integer())
        return ApiError::bad("lora", "each must be an object with the number \"id\"");
      const auto scale = one.find("scale");
      if (scale != one.end() && !scale->is_number()) return ApiError::bad("lora", "\"scale\" must be a number");
      params.lora->emplace_back(one["id"].get<int64_t>(), scale == one.end() ? 1.0 : scale->get<double>());
    }
    return std::nullopt;
  };
  return field;
}

std::optional<std::string> model_with_adapter(ModelRegistry& models, const std::string& adapter) {
  for (const ModelStatus& model : models.list()) {
    if (!model.served) continue;
    const auto adapters = model.served->engine->adapters();
    if (std::ranges::find(adapters, adapter, &AdapterInfo::name) != adapters.end()) return model.name;
  }
  return std::nullopt;
}

std::optional<ApiError> choose_adapters(GenerationRequest& params) {
  const auto adapters = params.served->engine->adapters();
  if (!params.adapter.empty()) {
    params.request.adapters = {{params.adapter, 1}};
  } else if (params.lora) {
    for (const auto& [id, scale] : *params.lora) {
      if (id < 0 || id >= static_cast<int64_t>(adapters.size()))
        return ApiError::bad("lora",
                             fmt::format("no adapter {}; {} are loaded, see /lora-adapters", id, adapters.size()));
      if (scale != 0) params.request.adapters.push_back({adapters[static_cast<size_t>(id)].name, scale});
    }
  } else {
    for (const AdapterInfo& adapter : adapters)
      if (const double scale = params.served->adapter_scales.get(adapter.name); scale != 0)
        params.request.adapters.push_back({adapter.name, scale});
  }
  if (params.request.adapters.empty()) return std::nullopt;
  if (params.prompt_logprobs >= 0 || (params.echo && params.request.sampling.logprobs >= 0))
    return ApiError{ApiErrorKind::unsupported, "prompt_logprobs: prompts are not scored with adapters",
                    "prompt_logprobs"};
  return std::nullopt;
}

}  // namespace millrace
