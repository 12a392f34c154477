// OpenAI's files and batches, stored in the folder given by --files-dir.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "server/api/api.h"
#include "server/api/file_user.h"
#include "server/api/query.h"
#include "server/batch/line_runner.h"
#include "server/http/multipart.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxFilesListed = 10000;
constexpr const char* kPurposes[] = {"assistants", "batch", "evals", "fine-tune", "user_data", "vision"};  // OpenAI's

ApiError no_folder() {
  return {ApiErrorKind::not_built, "files: this server stores no files; it was started without --files-dir", ""};
}
ApiError not_there(const char* what, const std::string& id) {
  return {ApiErrorKind::not_found, fmt::format("there is no {} '{}'", what, id.substr(0, 100)), ""};
}

ApiError refused_by(const Error& error) {
  ApiError out = ApiError::from(error);
  out.field = error.message.substr(0, error.message.find(':'));
  return out;
}

Json file_json(const StoredFile& file) {
  return {{"id", file.id},
          {"object", "file"},
          {"bytes", file.bytes},
          {"created_at", file.created},
          {"filename", file.filename},
          {"purpose", file.purpose},
          {"status", "processed"}};
}

// One page: `?limit=` items after `?after=`.
template <typename Item, typename Id>
Json page_json(std::vector<Item> items, const HttpRequest& request, size_t usual, Json (*json)(const Item&), Id id) {
  size_t limit = usual;
  const std::string count = query_value(request.query, "limit"), after = query_value(request.query, "after");
  std::from_chars(count.data(), count.data() + count.size(), limit);
  limit = std::clamp<size_t>(limit, 1, kMaxFilesListed);
  if (!after.empty()) {
    const auto found = std::ranges::find_if(items, [&](const Item& item) { return id(item) == after; });
    if (found != items.end()) items.erase(items.begin(), found + 1);
  }
  const bool more = items.size() > limit;
  if (more) items.resize(limit);
  Json data = Json::array();
  for (const Item& item : items) data.push_back(json(item));
  Json first, last;
  if (!items.empty()) {
    first = id(items.front());
    last = id(items.back());
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", std::move(first)},
          {"last_id", std::move(last)},
          {"has_more", more}};
}

Handled upload(Call& call) {
  FileStore* files = call.service.files();
  if (!files) return no_folder();
  const auto boundary = multipart_boundary(call.request.header("content-type"));
  if (!boundary)
    return ApiError{ApiErrorKind::bad_request, "the body must be multipart/form-data, with a boundary", ""};
  const auto parts = parse_multipart(call.request.body, *boundary);
  if (!parts) return ApiError{ApiErrorKind::bad_request, "the body is not well-formed multipart/form-data", ""};
  const FormPart* file = nullptr;
  std::string purpose;
  for (const FormPart& part : *parts) {
    if (part.name == "file") file = &part;
    if (part.name == "purpose") purpose = part.content;
  }
  if (!file) return ApiError::bad("file", "is missing");
  if (purpose.empty()) return ApiError::bad("purpose", "is missing");
  if (std::ranges::find(kPurposes, purpose) == std::end(kPurposes))
    return ApiError::bad("purpose",
                         fmt::format("must be one of {}; got '{}'", fmt::join(kPurposes, ", "), purpose.substr(0, 64)));
  auto added = files->add(file->filename, purpose, file->content, user_of(call));
  if (!added.ok()) return refused_by(added.error());
  return json_reply(file_json(*added));
}

Handled list_files(Call& call) {
  FileStore* files = call.service.files();
  if (!files) return no_folder();
  std::vector<StoredFile> all = files->list(user_of(call));
  if (const std::string purpose = query_value(call.request.query, "purpose"); !purpose.empty())
    std::erase_if(all, [&](const StoredFile& file) { return file.purpose != purpose; });
  return json_reply(page_json<StoredFile>(std::move(all), call.request, kMaxFilesListed, file_json,
                                          [](const StoredFile& file) { return file.id; }));
}

// ID, or ID/content.
Handled get_file(Call& call) {
  FileStore* files = call.service.files();
  if (!files) return no_folder();
  const std::string id = call.rest.substr(0, call.rest.find('/'));
  const std::string part = call.rest.substr(id.size());
  const auto file = files->find(id, user_of(call));
  if (!file || (!part.empty() && part != "/content")) return not_there("file", call.rest);
  if (part.empty()) return json_reply(file_json(*file));
  auto content = files->read(id);
  if (!content.ok()) return ApiError::from(content.error());
  return HttpReply{.content_type = "application/octet-stream", .body = std::move(*content)};
}

Handled delete_file(Call& call) {
  FileStore* files = call.service.files();
  if (!files) return no_folder();
  if (!files->find(call.rest, user_of(call))) return not_there("file", call.rest);
  if (call.service.batches()->uses(call.rest))
    return ApiError{ApiErrorKind::bad_request, "a batch that has not ended uses this file; cancel it first", ""};
  if (!files->remove(call.rest)) return not_there("file", call.rest);
  return json_reply({{"id", call.rest}, {"object", "file"}, {"deleted", true}});
}

Handled create_batch(Call& call) {
  BatchRunner* batches = call.service.batches();
  if (!batches) return no_folder();
  const Json metadata = call.body.value("metadata", Json());
  if (metadata.is_object())
    for (const auto& [key, value] : metadata.items())
      if (!value.is_string() || key.size() > 64 || value.get_ref<const std::string&>().size() > 512)
        return ApiError::bad("metadata." + key.substr(0, 64), "must be a string of at most 512 bytes");
  if (call.body["endpoint"] == "/v1/messages")
    return ApiError::bad("endpoint", "has its own batches: use /v1/messages/batches");
  auto made = batches->create(call.body["input_file_id"].get<std::string>(), call.body["endpoint"].get<std::string>(),
                              call.body["completion_window"].get<std::string>(), metadata, user_of(call));
  if (!made.ok()) return refused_by(made.error());
  return json_reply(*made);
}

Json same(const Json& batch) { return batch; }

Handled list_batches(Call& call) {
  BatchRunner* batches = call.service.batches();
  if (!batches) return no_folder();
  std::vector<Json> all = batches->list(user_of(call));
  std::erase_if(all, [](const Json& batch) { return batch["endpoint"] == "/v1/messages"; });
  return json_reply(page_json<Json>(std::move(all), call.request, 20, same,
                                    [](const Json& batch) { return batch["id"].get<std::string>(); }));
}

Handled get_batch(Call& call) {
  BatchRunner* batches = call.service.batches();
  if (!batches) return no_folder();
  const auto batch = batches->find(call.rest, user_of(call));
  if (!batch) return not_there("batch", call.rest);
  return json_reply(*batch);
}

Handled cancel_batch(Call& call) {
  BatchRunner* batches = call.service.batches();
  if (!batches) return no_folder();
  constexpr std::string_view kCancel = "/cancel";
  if (!call.rest.ends_with(kCancel)) return ApiError{ApiErrorKind::not_found, "unknown path; use ID/cancel", ""};
  const std::string id = call.rest.substr(0, call.rest.size() - kCancel.size());
  const auto batch = batches->cancel(id, user_of(call));
  if (!batch) return not_there("batch", id);
  return json_reply(*batch);
}

}  // namespace

FileUser user_of(const Call& call) {
  if (!call.request.account) return {};
  const ApiKey key = call.request.account->key();
  return {key.name, key.admin, key.limits.files, key.limits.file_bytes};
}

std::vector<Endpoint> file_endpoints() {
  Field input{"input_file_id", kJsonText, "",
              "a file with one request in each line: \"custom_id\", \"method\", \"url\", \"body\""};
  Field endpoint{"endpoint", kJsonText, "",
                 "the endpoint of every line: /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses, "
                 "where available"};
  Field window{"completion_window", kJsonText, "", "time limit, after which the batch ends with the results it has"};
  window.choices = {"24h"};
  for (Field* field : {&input, &endpoint, &window}) field->required = true;
  Field metadata{"metadata", kJsonObject, "none", "strings that are returned with the batch"};
  metadata.most = kMaxMetadata;
  const auto at = [](const char* method, const char* path, const char* summary, Handled (*handle)(Call&)) {
    return Endpoint{.method = method,
                    .path = path,
                    .dialect = &kOpenAi,
                    .summary = summary,
                    .handle = handle,
                    .without_model = true};
  };
  std::vector<Endpoint> list;
  list.push_back(at("POST", "/v1/files",
                    "Uploads a file, as multipart/form-data with the parts `file` and `purpose`. A key sees only its "
                    "own files and batches; an admin key sees all.",
                    upload));
  list.back().raw_body = true;
  list.push_back(
      at("GET", "/v1/files", "Lists files, filtered by `?purpose=` and paged by `?after=` and `?limit=`.", list_files));
  list.push_back(at("GET", "/v1/files/*", "Describes a file; `ID/content` returns its bytes.", get_file));
  list.push_back(at("DELETE", "/v1/files/*", "Deletes a file.", delete_file));
  list.push_back(at("POST", "/v1/batches",
                    "Starts a batch over a file of requests, which run behind those of other clients.", create_batch));
  list.back().fields = {input, endpoint, window, metadata};
  list.push_back(
      at("GET", "/v1/batches", "Lists batches, latest first, paged by `?after=` and `?limit=`.", list_batches));
  list.push_back(at("GET", "/v1/batches/*", "Returns a batch's progress and its files.", get_batch));
  list.push_back(at("POST", "/v1/batches/*", "`ID/cancel` ends a batch with the results it has.", cancel_batch));
  list.back().raw_body = true;
  return list;
}

}  // namespace millrace
