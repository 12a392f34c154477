// LoRA adapters of loaded models: llama-server's list and scales, vLLM's loading and unloading.
#include "server/models/adapters.h"

#include <fmt/format.h>

#include <cmath>

#include "server/api/api.h"
#include "server/api/sampling_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

Handled list_adapters(Call& call) {
  Json out = Json::array();
  for (const AdapterInfo& adapter : call.engine().adapters())
    out.push_back({{"id", out.size()},
                   {"name", adapter.name},
                   {"path", adapter.path},
                   {"scale", call.served().adapter_scales.get(adapter.name)},
                   {"rank", adapter.rank},
                   {"size", adapter.bytes}});
  return json_reply(out);
}

// The body is a JSON array, which the field schema cannot describe.
Handled set_scales(Call& call) {
  const Json body = parse_json(call.request.body);
  const auto wrong = [](const std::string& what) {
    return ApiError{ApiErrorKind::bad_request, "lora-adapters: " + what, ""};
  };
  if (!body.is_array()) return wrong("must be a list of objects with \"id\" and \"scale\"");
  const auto adapters = call.engine().adapters();
  std::map<std::string, double> scales;
  for (const Json& one : body) {
    if (!one.is_object() || !one.contains("id") || !one["id"].is_number_unsigned() || !one.contains("scale") ||
        !one["scale"].is_number())
      return wrong("each must be an object with \"id\" and \"scale\"");
    const auto id = one["id"].get<uint64_t>();
    const double scale = one["scale"].get<double>();
    if (id >= adapters.size()) return wrong(fmt::format("no adapter has id {}; {} are loaded", id, adapters.size()));
    if (!(std::abs(scale) <= 1e6)) return wrong("scales must be between -1e6 and 1e6");
    scales[adapters[id].name] = scale;
  }
  call.served().adapter_scales.set(std::move(scales));
  return json_reply({{"success", true}});
}

Handled load_adapter(Call& call) {
  const std::string name = call.body["lora_name"].get<std::string>(), path = call.body["lora_path"].get<std::string>();
  if (!call.service.trusts_callers())
    return ApiError{ApiErrorKind::forbidden,
                    "lora_path: requests without a key may not name files on the server; configure API keys",
                    "lora_path"};
  if (call.service.models().resolve(name))
    return ApiError::bad("lora_name", fmt::format("'{}' is a model's name", name));
  if (auto loaded = call.engine().load_adapter(name, path); !loaded.ok()) {
    const ErrorKind kind = loaded.error().kind;
    return ApiError{kind == ErrorKind::unsupported ? ApiErrorKind::unsupported : ApiErrorKind::bad_request,
                    loaded.error().message, "lora_path"};
  }
  return json_reply({{"success", true}, {"lora_name", name}});
}

Handled unload_adapter(Call& call) {
  const std::string name = call.body["lora_name"].get<std::string>();
  if (!call.engine().unload_adapter(name))
    return ApiError{ApiErrorKind::no_model, fmt::format("adapter '{}' is not loaded", name.substr(0, 200)),
                    "lora_name"};
  return json_reply({{"success", true}});
}

}  // namespace

std::vector<Endpoint> adapter_endpoints() {
  const auto required = [](const char* name, const char* help) {
    Field field{name, kJsonText, "", help};
    field.required = true;
    return field;
  };
  const Field name = required("lora_name", "the adapter's name, which requests use in the field `model`");
  std::vector<Endpoint> all;
  all.push_back({.method = "GET",
                 .path = "/lora-adapters",
                 .dialect = &kLlamaServer,
                 .summary = "Lists the model's LoRA adapters, with the scales that requests use by default.",
                 .handle = list_adapters});
  all.push_back(
      {.method = "POST",
       .path = "/lora-adapters",
       .dialect = &kLlamaServer,
       .summary =
           "Sets the default scales: a list of objects with `id` and `scale`; adapters that are not listed get 0.",
       .handle = set_scales,
       .raw_body = true,
       .admin = true});
  all.push_back(
      {.method = "POST",
       .path = "/v1/load_lora_adapter",
       .dialect = &kOpenAi,
       .summary = "Loads a LoRA adapter, or replaces it; requests in progress keep the version they started with.",
       .fields = {model_field(), name,
                  required("lora_path", "file or folder on the server: GGUF, or PEFT safetensors")},
       .handle = load_adapter,
       .admin = true});
  all.push_back({.method = "POST",
                 .path = "/v1/unload_lora_adapter",
                 .dialect = &kOpenAi,
                 .summary = "Unloads a LoRA adapter; requests in progress keep it.",
                 .fields = {model_field(), name},
                 .handle = unload_adapter,
                 .admin = true});
  return all;
}

}  // namespace millrace
