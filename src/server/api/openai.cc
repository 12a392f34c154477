// OpenAI's API: how it refuses, its list of models, and what its answers have in common.
#include "server/api/openai.h"

#include "server/api/models.h"
#include "server/api/sampling_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

struct Shape {
  const char* type;
  const char* code;  // null: none
};

Shape shape_of(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::too_long: return {"invalid_request_error", "context_length_exceeded"};
    case ApiErrorKind::unauthorized: return {"invalid_request_error", "invalid_api_key"};
    case ApiErrorKind::forbidden: return {"permission_error", nullptr};
    case ApiErrorKind::no_model: return {"invalid_request_error", "model_not_found"};
    case ApiErrorKind::unsupported: return {"not_supported_error", nullptr};
    case ApiErrorKind::overloaded: return {"rate_limit_error", "queue_full"};
    case ApiErrorKind::rate_limited: return {"rate_limit_error", "rate_limit_exceeded"};
    case ApiErrorKind::no_quota: return {"insufficient_quota", "insufficient_quota"};
    case ApiErrorKind::draining: return {"unavailable_error", nullptr};
    case ApiErrorKind::time_limit: return {"timeout_error", nullptr};
    case ApiErrorKind::internal: return {"server_error", nullptr};
    default: return {"invalid_request_error", nullptr};
  }
}

Json error_json(const ApiError& error) {
  const Shape shape = shape_of(error.kind);
  Json inner = {{"message", error.message}, {"type", shape.type}, {"param", nullptr}, {"code", nullptr}};
  if (!error.field.empty()) inner["param"] = error.field;
  if (shape.code) inner["code"] = shape.code;
  if (error.kind == ApiErrorKind::too_long) {
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context;
  }
  return {{"error", std::move(inner)}};
}

HttpReply refuse(const ApiError& error) { return {.status = http_status(error.kind), .body = to_text(error_json(error))}; }
std::string refuse_in_stream(const ApiError& error) { return sse_data(error_json(error)); }

Handled list_models(Call& call) {
  Json data = Json::array();
  for (const ModelStatus& model : call.service.models().list()) {
    data.push_back(model_entry(call.service, model, model.name));
    for (const std::string& alias : model.aliases) data.push_back(model_entry(call.service, model, alias));
  }
  return json_reply({{"object", "list"}, {"data", std::move(data)}});
}

Handled show_model(Call& call) {
  const auto name = call.service.models().resolve(call.rest);
  if (name) {
    for (const ModelStatus& model : call.service.models().list())
      if (model.name == *name) return json_reply(model_entry(call.service, model, call.rest));
  }
  return call.service.no_such_model(call.rest);
}

}  // namespace

const Dialect kOpenAi = {"OpenAI",
                         "Errors are `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`; `param` names the field. Streams are server-sent events that end with "
                         "`data: [DONE]`; an error in a stream is a last `data: {\"error\": ...}`.",
                         refuse, refuse_in_stream};

Json openai_envelope(const Answer& answer, const char* object, Json choices) {
  return {{"id", answer.id},
          {"object", object},
          {"created", answer.created},
          {"model", answer.model_name},
          {"system_fingerprint", "millrace"},
          {"choices", std::move(choices)}};
}

const char* openai_finish(const Choice& choice) { return choice.finish == FinishReason::stop ? "stop" : "length"; }

Json openai_usage(const Answer& answer) {
  return {{"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", answer.generated_tokens},
          {"total_tokens", answer.prompt_tokens + answer.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", answer.cached_tokens}}}};
}

std::vector<Field> unsupported_extensions() {
  const auto is_true = [](const Json& value) { return value.is_boolean() && value.get<bool>(); };
  const auto is_off = [](const Json& value) { return is_false(value) || (value.is_number() && value.get<double>() <= 0); };
  return {unsupported_field("stop_token_ids", is_empty), unsupported_field("include_stop_str_in_output", is_false),
          unsupported_field("skip_special_tokens", is_true), unsupported_field("truncate_prompt_tokens", is_off),
          unsupported_field("return_token_ids", is_false), unsupported_field("bad_words", is_empty),
          unsupported_field("thinking_token_budget", is_off), unsupported_field("prompt_embeds", is_empty)};
}

std::vector<Endpoint> openai_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST", .path = "/v1/chat/completions", .dialect = &kOpenAi, .summary = "Answers a conversation.", .fields = chat_completion_fields(),
                  .prepare = prepare_chat_completion, .format = &kChatCompletions});
  list.push_back({.method = "POST", .path = "/v1/completions", .dialect = &kOpenAi, .summary = "Continues a text.", .fields = completion_fields(),
                  .prepare = prepare_completion, .format = &kCompletions});
  list.push_back({.method = "GET", .path = "/v1/models", .dialect = &kOpenAi, .summary = "The models that are served, each under all of its names, in memory or not.", .handle = list_models, .without_model = true});
  list.push_back({.method = "GET", .path = "/v1/models/*", .dialect = &kOpenAi, .summary = "One of them.", .handle = show_model, .without_model = true});
  return list;
}

}  // namespace millrace
