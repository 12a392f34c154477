// The calls of Ollama's API that manage models: create, copy, delete, pull and blobs, over the store
// (hub/model_store.h). Without keys they answer local clients only; with keys they need the role admin.
#include <fmt/format.h>

#include <algorithm>

#include "hub/short_names.h"
#include "run/embedded_model.h"
#include "server/api/api.h"
#include "server/models/stored_models.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// What is missing for a call that changes models; nullopt: nothing.
Wrong check_store(const Call& call) {
  if (!call.service.models().store())
    return ApiError{ApiErrorKind::not_built,
                    call.request.path + ": this server was started without a store of models; use --store", ""};
  if (!call.service.trusts_callers())
    return ApiError{ApiErrorKind::forbidden,
                    call.request.path + ": requests without a key may not change models; configure API keys", ""};
  return std::nullopt;
}

ApiError store_error(const Error& error) {
  switch (error.kind) {
    case ErrorKind::user:
    case ErrorKind::corrupt: return {ApiErrorKind::bad_request, error.message, "model"};
    case ErrorKind::unsupported: return {ApiErrorKind::unsupported, error.message, "model"};
    default: return {ApiErrorKind::internal, error.message, ""};
  }
}

ApiError no_model_on_machine(const std::string& name) {
  return {ApiErrorKind::no_model, "model '" + name.substr(0, 200) + "' is not on this machine", "model"};
}

HttpReply lines_reply(std::string body, HttpHeaders headers) {
  return {.content_type = "application/x-ndjson", .headers = std::move(headers), .body = std::move(body)};
}

std::string status_line(const std::string& status) { return to_text(Json{{"status", status}}) + "\n"; }

std::string name_in(const Json& body) {
  const std::string model = body.value("model", std::string());
  return model.empty() ? body.value("name", std::string()) : model;
}

// Returns true if the text names a model of the store or a built-in one, not a path of this machine.
bool names_model(const ModelStore& store, const std::string& name) {
  return !name.empty() && (store.find(name) || find_embedded_model(name));
}

Handled copy_for_client(Call& call) {
  if (auto wrong = check_store(call)) return *wrong;
  const ModelStore& store = *call.service.models().store();
  const std::string from = call.body.value("source", std::string());
  if (!names_model(store, from)) return no_model_on_machine(from);
  const auto done = copy_model(store, from, call.body.value("destination", std::string()));
  if (!done.ok()) return store_error(done.error());
  call.service.models().store_changed();
  return HttpReply{.body = ""};
}

// The body of a DELETE is not read by the service.
Handled delete_model(Call& call) {
  if (auto wrong = check_store(call)) return *wrong;
  const Json body = parse_json(call.request.body);
  if (!body.is_object()) return ApiError::bad("model", "the body must be a JSON object with the name of a model");
  const auto text = [&](const char* key) {
    const auto found = body.find(key);
    return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::string name = text("model").empty() ? text("name") : text("model");
  const ModelStore& store = *call.service.models().store();
  if (!store.find(name)) return no_model_on_machine(name);
  const auto done = store.remove(name);
  if (!done.ok()) return store_error(done.error());
  call.service.models().store_changed();
  return HttpReply{.body = ""};
}

// [{"role", "content"}] of `messages`.
std::vector<std::pair<std::string, std::string>> messages_in(const Json& body) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!body.contains("messages")) return out;
  for (const Json& one : body["messages"])
    if (one.is_object() && one.value("role", Json()).is_string() && one.value("content", Json()).is_string())
      out.emplace_back(one["role"].get<std::string>(), one["content"].get<std::string>());
  return out;
}

// {"temperature": 0.7, "stop": ["a", "b"]} as PARAMETER lines.
std::vector<std::pair<std::string, std::string>> parameters_in(const Json& body) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!body.contains("parameters")) return out;
  const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); };
  for (const auto& [name, value] : body["parameters"].items()) {
    if (!value.is_array()) out.emplace_back(name, text(value));
    for (size_t i = 0; value.is_array() && i < value.size(); ++i) out.emplace_back(name, text(value[i]));
  }
  return out;
}

// {"model.gguf": "sha256:..."}: the paths of uploads, linked under their names in `folder`.
Result<std::vector<std::string>> uploads_in(const Json& body, const char* field, const ModelStore& store,
                                            const std::filesystem::path& folder) {
  std::vector<std::string> out;
  if (!body.contains(field)) return out;
  for (const auto& [name, digest] : body[field].items()) {
    if (!is_safe_path(name) || name.find('/') != std::string::npos || !digest.is_string())
      return Error::user(fmt::format("{}: must map file names to digests", field));
    const auto blob = store.blob(digest.get<std::string>());
    if (!blob) return Error::user(fmt::format("{}: {} was not uploaded to /api/blobs", field, name));
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    std::filesystem::create_hard_link(*blob, folder / name, failed);
    if (failed) std::filesystem::create_symlink(*blob, folder / name, failed);
    if (failed) return Error::resource(fmt::format("{}: {}", (folder / name).string(), failed.message()));
    out.push_back((folder / name).string());
  }
  return out;
}

// The model that drafts: the name of one on this machine, or uploads as in `files`.
Result<std::string> draft_in(const Json& body, const ModelStore& store, const std::filesystem::path& folder) {
  const Json draft = body.value("draft", Json());
  if (draft.is_object()) {
    MILLRACE_TRY(const auto files, uploads_in(body, "draft", store, folder));
    return files.size() > 1 ? folder.string() : files.empty() ? std::string() : files.front();
  }
  if (!draft.is_string()) return std::string();
  const auto name = draft.get<std::string>();
  if (!names_model(store, name))
    return Error::user("draft: '" + name.substr(0, 200) + "' is not a model on this machine");
  return name;
}

Result<void> create_from(const Json& body, const ModelStore& store, const std::filesystem::path& folder) {
  Modelfile about;
  about.from = body.value("from", std::string());
  about.chat_template = body.value("template", std::string());
  about.system = body.value("system", std::string());
  about.parameters = parameters_in(body);
  about.messages = messages_in(body);
  if (const Json license = body.value("license", Json()); license.is_string())
    about.license = license.get<std::string>();
  if (body.contains("quantize"))
    return Error::unsupported(
        "quantize: models are stored as they are; convert the file first (millrace convert --format)");
  if (is_go_template(about.chat_template))
    return Error::unsupported("template: is a Go template, and chat templates here are Jinja; leave it out");
  MILLRACE_TRY(const auto files, uploads_in(body, "files", store, folder / "files"));
  MILLRACE_TRY(about.adapters, uploads_in(body, "adapters", store, folder / "adapters"));
  if (!files.empty()) about.from = files.size() == 1 ? files.front() : (folder / "files").string();
  if (about.from.empty()) return Error::user("from: is missing; name a model, or upload files");
  MILLRACE_TRY(about.draft, draft_in(body, store, folder / "draft"));
  if (files.empty() && !names_model(store, about.from))
    return Error::user("from: '" + about.from.substr(0, 200) + "' is not a model on this machine");
  const std::string shown = files.empty() ? about.from : std::filesystem::path(files.front()).filename().string();
  MILLRACE_TRY(ModelRecipe recipe, model_recipe(store, std::move(about)));
  recipe.about.from = shown;
  return store.create(name_in(body), recipe);
}

Wrong create_model(Call& call, const Exchange& exchange) {
  if (auto wrong = check_store(call)) return wrong;
  const ModelStore& store = *call.service.models().store();
  const std::filesystem::path folder = store.folder() / ("uploads-" + call.service.new_id());
  auto done = create_from(call.body, store, folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!done.ok()) return store_error(done.error());
  call.service.models().store_changed();
  if (call.body.value("stream", true)) {
    exchange.begin_stream(lines_reply(status_line("creating model"), call.service.headers(call.request)));
    exchange.finish(status_line("writing manifest") + status_line("success"));
  } else {
    HttpReply reply = json_reply({{"status", "success"}});
    reply.headers = call.service.headers(call.request);
    exchange.reply(std::move(reply));
  }
  return std::nullopt;
}

Wrong pull_for_client(Call& call, const Exchange& exchange) {
  if (auto wrong = check_store(call)) return wrong;
  const std::string asked = name_in(call.body);
  const auto known = find_short_name(asked);
  auto name = parse_hub_name(known.ok() && *known ? **known : canonical_model_name(asked));
  if (!name.ok())
    return ApiError::bad(
        "model", "'" + asked.substr(0, 200) +
                     "': models are downloaded from a hub: name one as hf.co/OWNER/NAME:QUANT, or by a short name of "
                     "millrace pull --list");
  const bool stream = call.body.value("stream", true);
  Service* service = &call.service;
  const HttpHeaders headers = call.service.headers(call.request);
  ModelPulls::Work work{
      .name = *name, .options = {}, .gone = std::make_shared<std::atomic<bool>>(false), .done = nullptr};
  if (stream) {
    work.options.progress = [exchange, digest = asked](const PullProgress& now) {
      exchange.write(
          to_text(Json{
              {"status", "pulling " + digest}, {"digest", digest}, {"total", now.total}, {"completed", now.bytes}}) +
          "\n");
    };
  }
  work.done = [exchange, service, headers, stream](const Result<PulledModel>& pulled) {
    service->models().store_changed();
    if (!pulled.ok()) {
      const std::string text = to_text(Json{{"error", pulled.error().message}});
      if (stream) return exchange.finish(text + "\n");
      return exchange.reply(service->refused(kOllama, store_error(pulled.error()), headers));
    }
    if (stream)
      return exchange.finish(status_line("verifying sha256 digest") + status_line("writing manifest") +
                             status_line("success"));
    HttpReply reply = json_reply({{"status", "success"}});
    reply.headers = headers;
    exchange.reply(std::move(reply));
  };
  exchange.on_disconnect([gone = work.gone] { *gone = true; });
  if (stream) exchange.begin_stream(lines_reply(status_line("pulling manifest"), headers));
  const auto started = call.service.pulls().start(std::move(work));
  if (started.ok()) return std::nullopt;
  if (!stream) return ApiError{ApiErrorKind::overloaded, started.error().message, ""};
  exchange.finish(to_text(Json{{"error", started.error().message}}) + "\n");
  return std::nullopt;
}

Handled find_blob(Call& call) {
  if (auto wrong = check_store(call)) return *wrong;
  if (!call.service.models().store()->blob(call.rest))
    return ApiError{ApiErrorKind::not_found, call.rest.substr(0, 100) + ": not uploaded", ""};
  return HttpReply{.body = ""};
}

Handled add_blob(Call& call) {
  if (auto wrong = check_store(call)) return *wrong;
  const auto done = call.service.models().store()->add_blob(call.rest, call.request.body);
  if (!done.ok()) return store_error(done.error());
  return HttpReply{.status = 201, .body = ""};
}

Handled push_model(Call& call) {
  return ApiError{ApiErrorKind::not_built, call.request.path + ": models are not uploaded to a hub from here", ""};
}

Field managed_text(const char* name, const char* preset, const char* help) { return {name, kJsonText, preset, help}; }

Field managed_flag(const char* name, const char* preset, const char* help) {
  return {name, kJsonBoolean, preset, help};
}

}  // namespace

std::vector<Endpoint> ollama_model_endpoints() {
  const Field model = managed_text("model", "none", "name of the model"),
              name = managed_text("name", "none", "older name of the field model"),
              stream = managed_flag("stream", "true", "report progress as lines of JSON");
  const auto endpoint = [](const char* method, const char* path, const char* summary) {
    return Endpoint{
        .method = method, .path = path, .dialect = &kOllama, .summary = summary, .without_model = true, .admin = true};
  };
  std::vector<Endpoint> all;
  all.push_back(endpoint("POST", "/api/create", "Makes a model from another one, or from uploaded files."));
  all.back().fields = {model,
                       name,
                       managed_text("from", "none", "the model to make it from"),
                       {"files", kJsonObject, "{}", "names and digests of uploaded files to make it from"},
                       {"adapters", kJsonObject, "{}", "names and digests of uploaded LoRA adapters"},
                       {"draft", kJsonText | kJsonObject, "none",
                        "the model that drafts for it: the name of one on this machine, or names and digests of "
                        "uploaded files"},
                       managed_text("template", "that of the files", "chat template, in Jinja"),
                       managed_text("system", "none", "system prompt of conversations without one"),
                       {"license", kJsonText | kJsonList, "none", "text of its licence"},
                       {"parameters", kJsonObject, "{}", "defaults of requests, such as temperature"},
                       {"messages", kJsonList, "[]", "messages that are stored with it"},
                       stream};
  all.back().begin = create_model;
  all.push_back(endpoint("POST", "/api/copy", "Gives a model a second name."));
  all.back().fields = {managed_text("source", "none", "name of the model"),
                       managed_text("destination", "none", "its second name")};
  all.back().handle = copy_for_client;
  all.push_back(endpoint("DELETE", "/api/delete",
                         "Deletes a model, named by `model` in the body, and those of its files that no other needs."));
  all.back().handle = delete_model;
  all.back().raw_body = true;
  all.push_back(endpoint("POST", "/api/pull", "Downloads a model from a hub: hf.co/OWNER/NAME:QUANT."));
  all.back().fields = {model, name, managed_flag("insecure", "false", "ignored: the hub's address decides"), stream};
  all.back().begin = pull_for_client;
  all.push_back(endpoint("GET", "/api/blobs/*", "Whether a file with this digest was uploaded: 200 or 404."));
  all.back().handle = find_blob;
  all.push_back(
      endpoint("POST", "/api/blobs/*", "Uploads a file for /api/create; its size is limited by --max-body-bytes."));
  all.back().handle = add_blob;
  all.back().raw_body = true;
  all.push_back(endpoint("POST", "/api/push", "Not supported: models are not uploaded to a hub from here."));
  all.back().handle = push_model;
  all.back().raw_body = true;
  all.back().admin = false;
  return all;
}

}  // namespace millrace
