// Resumes streams after a lost connection: llama-server's paths, and Last-Event-ID as browsers send it.
#include <fmt/format.h>

#include <charconv>

#include "server/api/api.h"
#include "server/api/query.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr size_t kMaxIds = 1024;

// From the path, or ?conv_id=.
std::string id_of(const Call& call) {
  return call.rest.empty() ? query_value(call.request.query, "conv_id") : call.rest;
}

ApiError no_stream(const std::string& id) {
  return {ApiErrorKind::not_found, fmt::format("there is no stream '{}'", id.substr(0, 200)), ""};
}

// From ?from= or Last-Event-ID; 0 without either.
std::optional<int64_t> offset_of(const HttpRequest& request) {
  std::string text = query_value(request.query, "from");
  if (text.empty()) text = request.header("last-event-id");
  if (text.empty()) return 0;
  int64_t offset = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), offset);
  if (failed != std::errc() || end != text.data() + text.size() || offset < 0) return std::nullopt;
  return offset;
}

Wrong resume(Call& call, const Exchange& exchange) {
  const std::string id = id_of(call);
  const auto from = offset_of(call.request);
  if (!from) return ApiError::bad("from", "must be a byte offset");
  switch (call.service.streams().resume(stream_owner(call.request), id, *from, call.service.headers(call.request),
                                        exchange)) {
    case StreamStore::Found::yes: return std::nullopt;
    case StreamStore::Found::no_stream: return no_stream(id);
    case StreamStore::Found::too_old: return ApiError::bad("from", "those bytes are no longer stored");
    case StreamStore::Found::too_far: return ApiError::bad("from", "the stream is shorter than that so far");
  }
  return std::nullopt;
}

// Removing an unknown stream succeeds.
Handled remove(Call& call) {
  call.service.streams().remove(stream_owner(call.request), id_of(call));
  return HttpReply{.status = 204, .content_type = ""};
}

Handled look_up(Call& call) {
  Json list = Json::array();
  for (const KeptStream& stream : call.service.streams().find(
           stream_owner(call.request), call.body["conversation_ids"].get<std::vector<std::string>>()))
    list.push_back({{"conversation_id", stream.id},
                    {"is_done", stream.done},
                    {"total_bytes", stream.bytes},
                    {"started_at", stream.started_ms},
                    {"completed_at", stream.ended_ms}});
  return json_reply(list);
}

}  // namespace

std::vector<Endpoint> stream_endpoints() {
  Field ids{"conversation_ids", kJsonTexts, "", "the ids to look up; there is no list of all streams"};
  ids.required = true;
  ids.most = kMaxIds;
  const char* about =
      "Resumes the stream whose request had this id in its X-Conversation-Id header: from byte `?from=`, or from the "
      "event after `Last-Event-ID`. The new reader replaces the previous one.";
  std::vector<Endpoint> list;
  list.push_back({.method = "GET",
                  .path = "/v1/stream/*",
                  .dialect = &kLlamaServer,
                  .summary = about,
                  .begin = resume,
                  .without_model = true});
  list.push_back({.method = "GET",
                  .path = "/v1/stream",
                  .dialect = &kLlamaServer,
                  .summary = "The same, with the id as `?conv_id=`.",
                  .begin = resume,
                  .without_model = true});
  list.push_back({.method = "DELETE",
                  .path = "/v1/stream/*",
                  .dialect = &kLlamaServer,
                  .summary = "Cancels a stream and deletes it.",
                  .handle = remove,
                  .without_model = true});
  list.push_back({.method = "DELETE",
                  .path = "/v1/stream",
                  .dialect = &kLlamaServer,
                  .summary = "The same, with the id as `?conv_id=`.",
                  .handle = remove,
                  .without_model = true});
  list.push_back({.method = "POST",
                  .path = "/v1/streams/lookup",
                  .dialect = &kLlamaServer,
                  .summary = "Which of these streams exist, and how far they have progressed.",
                  .fields = {ids},
                  .handle = look_up,
                  .without_model = true});
  return list;
}

}  // namespace millrace
