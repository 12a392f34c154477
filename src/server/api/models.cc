// llama-server's endpoints to list, load and unload models.
#include "server/api/models.h"

#include <charconv>
#include <filesystem>

#include "base/memory.h"
#include "server/api/api.h"
#include "server/api/sampling_fields.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// The memory that models are loaded into, in bytes. `total` and `available` are null where the system does not say.
Json memory_json(const Service& service) {
  const auto known = [](const AvailableMemory& memory) {
    return memory.bytes == INT64_MAX ? Json() : Json(memory.bytes);
  };
  const auto accounts = service.models().memory();
  return {{"total", known(total_memory())},
          {"available", known(available_memory())},
          {"resident", resident_bytes()},
          {"budget", accounts ? accounts->budget() : 0}};
}

Handled list_models(Call& call) {
  Json data = Json::array();
  const ModelStore* store = call.service.models().store();
  for (const ModelStatus& model : call.service.models().list()) {
    data.push_back(model_entry(call.service, model, model.name));
    data.back()["stored"] = store && store->find(model.name);  // /api/delete can delete it
  }
  return json_reply({{"object", "list"},
                     {"data", std::move(data)},
                     {"memory", memory_json(call.service)},
                     {"store", store != nullptr}});  // /api/pull can download into it
}

// The caller chose the file, so a damaged or unsupported one is the caller's error.
ApiError load_error(const Error& error) {
  if (error.kind == ErrorKind::corrupt || error.kind == ErrorKind::unsupported)
    return {ApiErrorKind::bad_request, error.message, "model"};
  return Service::model_error(error);
}

Wrong load(Call& call, const Exchange& exchange) {
  const auto name = call.service.models().resolve(call.params.model);
  if (!name) return call.service.no_such_model(call.params.model);
  const std::string path = call.body.value("path", std::string());
  if (!path.empty() && !call.service.trusts_callers())
    return ApiError{ApiErrorKind::forbidden,
                    "path: requests without a key may not name files on the server; configure API keys", "path"};
  std::error_code ignored;
  if (!path.empty() && !std::filesystem::exists(path, ignored))
    return ApiError::bad("path", "there is no file or folder '" + path.substr(0, 200) + "'");
  auto done = [service = &call.service, exchange,
               headers = call.service.headers(call.request)](const Result<std::shared_ptr<ServedModel>>& served) {
    if (!served.ok()) return exchange.reply(service->refused(kLlamaServer, load_error(served.error()), headers));
    HttpReply reply = json_reply({{"success", true}, {"model", (*served)->name()}});
    reply.headers = headers;
    exchange.reply(std::move(reply));
  };
  if (!path.empty() || call.body.value("reload", false)) {
    call.service.models().reload(*name, path, done);
  } else {
    call.service.models().acquire(*name, {}, done);
  }
  return std::nullopt;
}

Handled unload_model(Call& call) {
  const auto name = call.service.models().resolve(call.params.model);
  if (!name) return call.service.no_such_model(call.params.model);
  if (!call.service.models().unload(*name))
    return ApiError{ApiErrorKind::bad_request, "model: '" + *name + "' is not loaded, or cannot be unloaded", "model"};
  return json_reply({{"success", true}});
}

}  // namespace

Json model_entry(const Service& service, const ModelStatus& model, const std::string& name) {
  Json out = {{"id", name}, {"object", "model"}, {"created", service.started()}, {"owned_by", "millrace"}};
  if (model.served) {
    const ModelInfo& info = model.served->model->info();
    out["max_model_len"] = model.served->context;
    out["meta"] = {{"n_vocab", info.vocab},
                   {"n_ctx_train", info.context},
                   {"n_params", info.parameters},
                   {"size", info.weight_bytes}};
    if (model.served->embeddings) out["meta"]["n_embd"] = model.served->embeddings->width(Pooling::none);
    out["root"] = model.name;
    out["parent"] = nullptr;
  }
  out["status"] = {{"value", model.state}};
  if (!model.error.empty()) {
    out["status"]["failed"] = true;
    out["status"]["error"] = model.error;
  }
  return out;
}

std::optional<double> duration_seconds(std::string_view text) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr Unit kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"h", 3600}, {"m", 60}, {"s", 1}};
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double sum = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, failed] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (failed != std::errc() || !(number >= 0)) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) {  // a bare number is seconds
      if (sum > 0) return std::nullopt;
      return negative ? -number : number;
    }
    const auto unit = std::ranges::find_if(kUnits, [&](const Unit& one) { return text.starts_with(one.name); });
    if (unit == std::end(kUnits)) return std::nullopt;
    sum += number * unit->seconds;
    text.remove_prefix(unit->name.size());
  }
  return negative ? -sum : sum;
}

Field keep_alive_field() {
  Field field{"keep_alive", kJsonText | kJsonNumber, "server default",
              "how long the model stays loaded after its last use: seconds, or a duration such as 5m or 1h30m; 0: not "
              "at all, negative: forever"};
  field.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    const auto seconds =
        value.is_number() ? std::optional(value.get<double>()) : duration_seconds(value.get_ref<const std::string&>());
    if (!seconds) return ApiError::bad("keep_alive", "must be seconds, or a duration such as 5m or 1h30m");
    params.keep_seconds = *seconds;
    return std::nullopt;
  };
  return field;
}

std::vector<Endpoint> model_endpoints() {
  Field model = model_field();
  model.required = true;
  std::vector<Endpoint> all;
  all.push_back(
      {.method = "GET",
       .path = "/models",
       .dialect = &kLlamaServer,
       .summary =
           "Lists the models, whether they are loaded and in the store, and the memory of this machine and of the "
           "server's budget.",
       .handle = list_models,
       .without_model = true});
  all.push_back(
      {.method = "POST",
       .path = "/models/load",
       .dialect = &kLlamaServer,
       .summary = "Loads or replaces a model; returns when done. Open streams of a replaced model run to their end.",
       .fields = {model,
                  Field{"path", kJsonText, "its current path",
                        "file or folder on the server to load it from, now and later"},
                  Field{"reload", kJsonBoolean, "false",
                        "reload it even if it is loaded, for example after its file changed"}},
       .begin = load,
       .without_model = true,
       .admin = true});
  all.push_back({.method = "POST",
                 .path = "/models/unload",
                 .dialect = &kLlamaServer,
                 .summary = "Stops accepting requests for a model, and frees it when its open streams have ended.",
                 .fields = {model},
                 .handle = unload_model,
                 .without_model = true,
                 .admin = true});
  return all;
}

}  // namespace millrace
