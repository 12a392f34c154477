// Anthropic's message batches: batches of /v1/messages requests, in the same folder and runner as OpenAI's batches.
//
//   msgbatch_ID   is the runner's batch_ID; its requests are in a JSONL file, its results in the output and error files
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "server/api/api.h"
#include "server/api/file_user.h"
#include "server/api/query.h"
#include "server/batch/line_runner.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr const char* kEndpoint = "/v1/messages";
constexpr std::string_view kPrefix = "msgbatch_", kOwnPrefix = "batch_";
constexpr size_t kMaxRequests = 10000;
constexpr size_t kMaxBatchesListed = 1000;

ApiError no_batch_folder() {
  return {ApiErrorKind::not_built, "batches: this server stores no batches; it was started without --files-dir", ""};
}
ApiError no_batch(const std::string& id) {
  return {ApiErrorKind::not_found, fmt::format("there is no message batch '{}'", id.substr(0, 100)), ""};
}

ApiError batch_refusal(const Error& error) {
  ApiError out = ApiError::from(error);
  out.field = "requests";
  return out;
}

std::string text_field(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : std::string();
}
int64_t number_of(const Json& json, const char* name) {
  return json.contains(name) && json[name].is_number_integer() ? json[name].get<int64_t>() : 0;
}

std::string outer_id(const Json& batch) {
  return std::string(kPrefix) + text_field(batch, "id").substr(kOwnPrefix.size());
}

bool has_ended(const Json& batch) {
  const std::string status = text_field(batch, "status");
  return status == "completed" || status == "failed" || status == "cancelled" || status == "expired";
}

Json time_json(const Json& batch, const char* name) {
  if (!batch.contains(name) || !batch[name].is_number_integer()) return nullptr;
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(batch[name].get<int64_t>())));
}

// The number of requests for each result.
Json counts_json(const Json& batch) {
  int64_t total = 0;
  const std::string requests =
      batch.contains("metadata") && batch["metadata"].is_object() ? text_field(batch["metadata"], "requests") : "";
  std::from_chars(requests.data(), requests.data() + requests.size(), total);
  const Json& counts = batch["request_counts"];
  const int64_t good = number_of(counts, "completed"), bad = number_of(counts, "failed"),
                left = std::max<int64_t>(0, total - good - bad);
  const std::string status = text_field(batch, "status");
  const bool ended = has_ended(batch);
  return {{"processing", ended ? 0 : left},
          {"succeeded", good},
          {"errored", bad + (status == "failed" ? left : 0)},
          {"canceled", status == "cancelled" ? left : 0},
          {"expired", status == "expired" ? left : 0}};
}

Json batch_json(const Json& batch) {
  const std::string status = text_field(batch, "status"), id = outer_id(batch);
  const bool ended = has_ended(batch);
  Json ended_at;
  for (const char* name : {"completed_at", "failed_at", "cancelled_at", "expired_at"})
    if (ended_at.is_null()) ended_at = time_json(batch, name);
  return {{"id", id},
          {"type", "message_batch"},
          {"processing_status", ended                    ? "ended"
                                : status == "cancelling" ? "canceling"
                                                         : "in_progress"},
          {"request_counts", counts_json(batch)},
          {"created_at", time_json(batch, "created_at")},
          {"expires_at", time_json(batch, "expires_at")},
          {"ended_at", std::move(ended_at)},
          {"cancel_initiated_at", time_json(batch, "cancelling_at")},
          {"archived_at", nullptr},
          {"results_url", ended ? Json(fmt::format("{}/batches/{}/results", kEndpoint, id)) : Json()}};
}

// The batch named in the path, which must end with `ending`.
std::optional<Json> find_batch(const Call& call, std::string_view ending = "") {
  std::string_view id = call.rest;
  if (!id.ends_with(ending)) return std::nullopt;
  id.remove_suffix(ending.size());
  if (!id.starts_with(kPrefix)) return std::nullopt;
  auto batch =
      call.service.batches()->find(std::string(kOwnPrefix) + std::string(id.substr(kPrefix.size())), user_of(call));
  return batch && text_field(*batch, "endpoint") == kEndpoint ? batch : std::nullopt;
}

// Converts [{"custom_id", "params"}] to the lines of a batch file.
std::optional<ApiError> read_requests(const Json& requests, std::string* lines) {
  if (requests.empty()) return ApiError::bad("requests", "is empty");
  std::unordered_set<std::string> ids;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Json& request = requests[i];
    const std::string where = fmt::format("requests[{}]", i);
    if (!request.is_object()) return ApiError::bad(where, "must be an object");
    const std::string id = text_field(request, "custom_id");
    if (id.empty() || id.size() > 64) return ApiError::bad(where + ".custom_id", "must be a string of 1 to 64 bytes");
    if (!ids.insert(id).second) return ApiError::bad(where + ".custom_id", fmt::format("'{}' is used twice", id));
    if (!request.contains("params") || !request["params"].is_object())
      return ApiError::bad(where + ".params", "must be an object");
    const Json& params = request["params"];
    if (params.contains("stream") && params["stream"] == true)
      return ApiError::bad(where + ".params.stream", "must be false or absent: batch responses are not streamed");
    const std::string line = to_text(Json{{"custom_id", id}, {"method", "POST"}, {"url", kEndpoint}, {"body", params}});
    if (line.size() > kMaxLineBytes)
      return ApiError::bad(where, fmt::format("has {} bytes, more than {}", line.size(), kMaxLineBytes));
    lines->append(line).push_back('\n');
  }
  return std::nullopt;
}

Handled create_message_batch(Call& call) {
  BatchRunner* batches = call.service.batches();
  if (!batches) return no_batch_folder();
  std::string lines;
  if (auto wrong = read_requests(call.body["requests"], &lines)) return *wrong;
  auto file = call.service.files()->add("message_batch.jsonl", "batch", lines, user_of(call));
  if (!file.ok()) return batch_refusal(file.error());
  auto made = batches->create(file->id, kEndpoint, "24h", {{"requests", std::to_string(call.body["requests"].size())}},
                              user_of(call));
  if (made.ok()) return json_reply(batch_json(*made));
  call.service.files()->remove(file->id);
  return batch_refusal(made.error());
}

// Latest first; ?limit=, ?after_id=, ?before_id=.
Handled list_message_batches(Call& call) {
  if (!call.service.batches()) return no_batch_folder();
  std::vector<Json> all;
  for (const Json& batch : call.service.batches()->list(user_of(call)))
    if (text_field(batch, "endpoint") == kEndpoint) all.push_back(batch_json(batch));
  return anthropic_page(std::move(all), call.request, kMaxBatchesListed);
}

Handled cancel_message_batch(Call& call) {
  constexpr std::string_view kCancel = "/cancel";
  if (!call.service.batches()) return no_batch_folder();
  const auto batch = find_batch(call, kCancel);
  if (!batch) return no_batch(call.rest);
  if (has_ended(*batch))
    return ApiError{ApiErrorKind::bad_request, fmt::format("message batch '{}' has ended", outer_id(*batch)), ""};
  const auto after = call.service.batches()->cancel(text_field(*batch, "id"), user_of(call));
  return json_reply(batch_json(after ? *after : *batch));
}

// Calls take() for each line of a file, if it exists.
template <typename Take>
void each_line(Call& call, const std::string& file, Take take) {
  if (file.empty()) return;
  const auto text = call.service.files()->read(file);
  if (!text.ok()) return;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const Json line = parse_json(std::string_view(*text).substr(at, end - at));
    if (line.is_object()) take(line);
    at = end + 1;
  }
}

Handled batch_results(Call& call, const Json& batch) {
  if (!has_ended(batch))
    return ApiError{ApiErrorKind::bad_request, fmt::format("message batch '{}' has not ended", outer_id(batch)), ""};
  std::unordered_set<std::string> written;
  std::string out;
  const auto add = [&](const std::string& id, Json result) {
    if (written.insert(id).second) out += to_text(Json{{"custom_id", id}, {"result", std::move(result)}}) + "\n";
  };
  each_line(call, text_field(batch, "output_file_id"), [&](const Json& line) {
    add(text_field(line, "custom_id"), {{"type", "succeeded"}, {"message", line["response"]["body"]}});
  });
  each_line(call, text_field(batch, "error_file_id"), [&](const Json& line) {
    add(text_field(line, "custom_id"), {{"type", "errored"}, {"error", line["response"]["body"]}});
  });
  const std::string status = text_field(batch, "status");
  const Json failed = {
      {"type", "error"},
      {"error", {{"type", "api_error"}, {"message", "the batch failed before this request was answered"}}}};
  each_line(call, text_field(batch, "input_file_id"), [&](const Json& line) {
    Json result = {{"type", status == "cancelled" ? "canceled" : status == "expired" ? "expired" : "errored"}};
    if (result["type"] == "errored") result["error"] = failed;
    add(text_field(line, "custom_id"), std::move(result));
  });
  return HttpReply{.content_type = "application/x-jsonl", .body = std::move(out)};
}

// ID, or ID/results.
Handled show_batch(Call& call) {
  constexpr std::string_view kResults = "/results";
  if (!call.service.batches()) return no_batch_folder();
  if (const auto batch = find_batch(call, kResults)) return batch_results(call, *batch);
  const auto batch = find_batch(call);
  if (!batch) return no_batch(call.rest);
  return json_reply(batch_json(*batch));
}

Handled forget(Call& call) {
  if (!call.service.batches()) return no_batch_folder();
  const auto batch = find_batch(call);
  if (!batch) return no_batch(call.rest);
  if (!call.service.batches()->remove(text_field(*batch, "id"), user_of(call)))
    return ApiError{ApiErrorKind::bad_request,
                    fmt::format("message batch '{}' has not ended; cancel it first", outer_id(*batch)), ""};
  for (const char* name : {"input_file_id", "output_file_id", "error_file_id"})
    if (const std::string file = text_field(*batch, name); !file.empty()) call.service.files()->remove(file);
  return json_reply({{"id", outer_id(*batch)}, {"type", "message_batch_deleted"}});
}

}  // namespace

std::vector<Endpoint> message_batch_endpoints() {
  Field requests{"requests", kJsonList, "",
                 "objects with \"custom_id\" and \"params\", the body of a request to /v1/messages"};
  requests.required = true;
  requests.most = kMaxRequests;
  const auto at = [](const char* method, const char* path, const char* summary, Handled (*handle)(Call&)) {
    return Endpoint{.method = method,
                    .path = path,
                    .dialect = &kAnthropic,
                    .summary = summary,
                    .handle = handle,
                    .without_model = true};
  };
  std::vector<Endpoint> all;
  all.push_back(at("POST", "/v1/messages/batches",
                   "Starts a batch of requests, which run behind those of other clients.", create_message_batch));
  all.back().fields = {requests};
  all.push_back(at("GET", "/v1/messages/batches",
                   "Lists message batches, latest first, paged by `?limit=`, `?after_id=` and `?before_id=`.",
                   list_message_batches));
  all.push_back(at("GET", "/v1/messages/batches/*",
                   "Returns a message batch's progress; `ID/results` returns its results, one in each line.",
                   show_batch));
  all.push_back(at("POST", "/v1/messages/batches/*", "`ID/cancel` ends a message batch with the results it has.",
                   cancel_message_batch));
  all.back().raw_body = true;
  all.push_back(
      at("DELETE", "/v1/messages/batches/*", "Deletes a message batch that has ended, and its results.", forget));
  return all;
}

}  // namespace millrace
