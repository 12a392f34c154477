// Anthropic's API: messages, and counting their tokens.
//
//   stream   message_start, content_block_start, content_block_delta ..., content_block_stop, message_delta, message_stop
#include <fmt/format.h>

#include "server/api/api.h"
#include "server/api/sampling_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

struct Shape {
  int status;
  const char* type;
};

Shape shape_of(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::unauthorized: return {401, "authentication_error"};
    case ApiErrorKind::forbidden: return {403, "permission_error"};
    case ApiErrorKind::not_found:
    case ApiErrorKind::no_model: return {404, "not_found_error"};
    case ApiErrorKind::too_large: return {413, "request_too_large"};
    case ApiErrorKind::rate_limited:
    case ApiErrorKind::no_quota: return {429, "rate_limit_error"};
    case ApiErrorKind::overloaded:
    case ApiErrorKind::draining: return {529, "overloaded_error"};
    case ApiErrorKind::time_limit: return {504, "timeout_error"};
    case ApiErrorKind::internal: return {500, "api_error"};
    case ApiErrorKind::unsupported: return {400, "invalid_request_error"};
    default: return {http_status(kind), "invalid_request_error"};
  }
}

Json error_json(const ApiError& error) { return {{"type", "error"}, {"error", {{"type", shape_of(error.kind).type}, {"message", error.message}}}}; }
HttpReply refuse(const ApiError& error) { return {.status = shape_of(error.kind).status, .body = to_text(error_json(error))}; }
std::string refuse_in_stream(const ApiError& error) { return sse_event("error", error_json(error)); }

Json usage(const Answer& answer, int64_t generated) {
  return {{"input_tokens", answer.prompt_tokens - answer.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", answer.cached_tokens},
          {"output_tokens", generated}};
}

Json message(const Answer& answer, Json content, Json stop_reason, Json stop_sequence, int64_t generated) {
  return {{"id", answer.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", answer.model_name},
          {"content", std::move(content)},
          {"stop_reason", std::move(stop_reason)},
          {"stop_sequence", std::move(stop_sequence)},
          {"usage", usage(answer, generated)}};
}

const char* stop_reason(const Choice& choice) {
  if (choice.finish != FinishReason::stop) return "max_tokens";
  return choice.stopped_by.empty() ? "end_turn" : "stop_sequence";
}

Json stop_sequence(const Choice& choice) { return choice.stopped_by.empty() ? Json() : Json(choice.stopped_by); }

std::string begin(Answer& answer) {
  return sse_event("message_start", {{"type", "message_start"}, {"message", message(answer, Json::array(), nullptr, nullptr, 0)}}) +
         sse_event("content_block_start", {{"type", "content_block_start"}, {"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
}

std::string delta(Answer& answer, size_t, const Delta& delta) {
  if (delta.text.empty()) return "";
  return sse_event("content_block_delta", {{"type", "content_block_delta"}, {"index", 0}, {"delta", {{"type", "text_delta"}, {"text", delta.text}}}});
}

std::string end(Answer& answer) {
  const Choice& choice = answer.choices.front();
  return sse_event("content_block_stop", {{"type", "content_block_stop"}, {"index", 0}}) +
         sse_event("message_delta", {{"type", "message_delta"}, {"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
                                     {"usage", usage(answer, answer.generated_tokens)}}) +
         sse_event("message_stop", {{"type", "message_stop"}});
}

Json whole(Answer& answer) {
  const Choice& choice = answer.choices.front();
  return message(answer, Json::array({Json{{"type", "text"}, {"text", choice.text}}}), stop_reason(choice), stop_sequence(choice), answer.generated_tokens);
}

const AnswerFormat kMessages = {"msg_", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

// A string, or blocks of text; an earlier answer's thinking is left out.
Wrong read_blocks(const std::string& where, const Json& content, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) return ApiError::bad(where, "must be a string or an array of blocks");
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& block = content[i];
    const std::string name = fmt::format("{}[{}]", where, i);
    if (!block.is_object() || !block.contains("type") || !block["type"].is_string()) return ApiError::bad(name, "must be an object with a \"type\"");
    const auto& type = block["type"].get_ref<const std::string&>();
    if (type == "thinking" || type == "redacted_thinking") continue;
    if (type != "text") return ApiError::unsupported(name, fmt::format("blocks of type '{}' are not supported", type));
    if (!block.contains("text") || !block["text"].is_string()) return ApiError::bad(name + ".text", "must be a string");
    *text += block["text"].get_ref<const std::string&>();
  }
  return std::nullopt;
}

// Roles that this API does not define count as the person's.
Wrong read_messages(const Json& value, Ask& ask) {
  if (value.empty()) return ApiError::bad("messages", "is empty");
  if (ask.messages.is_null()) ask.messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const Json& message = value[i];
    if (!message.is_object()) return ApiError::bad(where, "must be an object");
    if (!message.contains("role") || !message["role"].is_string()) return ApiError::bad(where + ".role", "must be a string");
    if (!message.contains("content")) return ApiError::bad(where + ".content", "is missing");
    std::string text;
    if (auto wrong = read_blocks(where + ".content", message["content"], &text)) return wrong;
    const std::string role = message["role"] == "assistant" || message["role"] == "system" ? message["role"].get<std::string>() : "user";
    ask.messages.push_back({{"role", role}, {"content", std::move(text)}});
  }
  ask.continue_last_message = ask.messages.back()["role"] == "assistant";
  ask.add_generation_prompt = !ask.continue_last_message;
  return std::nullopt;
}

std::vector<Field> prompt_fields() {
  Field system{"system", kText | kList, "none", "how the assistant should answer: a string or blocks of type text"};
  system.set = [](const Json& value, Ask& ask) -> Wrong {
    std::string text;
    if (auto wrong = read_blocks("system", value, &text)) return wrong;
    ask.messages = Json::array({Json{{"role", "system"}, {"content", std::move(text)}}});
    return std::nullopt;
  };
  Field messages{"messages", kList, "", "the conversation: objects with \"role\" (user, assistant) and \"content\", a string or blocks of type text; the answer goes on where a last message of the assistant ends"};
  messages.required = true;
  messages.most = 1 << 16;
  messages.set = read_messages;
  return {model_field(), system, messages};
}

std::vector<Field> unsupported_fields() {
  const auto is_off = [](const Json& value) { return value.is_object() && value.contains("type") && value["type"] == "disabled"; };
  return {unsupported_field("tools", is_empty),
          unsupported_field("tool_choice", [](const Json& value) { return value.is_object() && value.contains("type") && (value["type"] == "none" || value["type"] == "auto"); }),
          unsupported_field("thinking", is_off), unsupported_field("mcp_servers", is_empty)};
}

std::vector<Field> message_fields() {
  Field most = max_tokens_field("max_tokens", "");
  most.required = true;
  most.min = 1;
  most.help = "most tokens of the answer";
  return joined({prompt_fields(),
                 {most, stream_field(false), stop_field("stop_sequences"), sampling_field("temperature", "temperature"), sampling_field("top_p", "top_p"),
                  sampling_field("top_k", "top_k"), Field{"metadata", kObject, "", "of no effect"}},
                 unsupported_fields()});
}

Handled count_tokens(Call& call) {
  if (auto wrong = call.service.make_prompts(call.ask); wrong && wrong->kind != ApiErrorKind::too_long) return *wrong;
  return json_reply({{"input_tokens", call.ask.prompts.front().tokens.size()}});
}

}  // namespace

const Dialect kAnthropic = {"Anthropic",
                            "Errors are `{\"type\": \"error\", \"error\": {\"type\", \"message\"}}`; what is not supported is an `invalid_request_error`. Streams are named "
                            "server-sent events that end with `message_stop`; an error in a stream is a last `event: error`.",
                            refuse, refuse_in_stream};

std::vector<Endpoint> anthropic_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST", .path = "/v1/messages", .dialect = &kAnthropic, .summary = "Answers a conversation.", .fields = message_fields(), .format = &kMessages});
  list.push_back({.method = "POST", .path = "/v1/messages/count_tokens", .dialect = &kAnthropic, .summary = "How many tokens a conversation has.",
                  .fields = joined({prompt_fields(), unsupported_fields()}), .handle = count_tokens});
  return list;
}

}  // namespace millrace
