// OpenAI's API: errors, the list of models, and the shared parts of its responses.
#include "server/api/openai.h"

#include <algorithm>

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
    case ApiErrorKind::unsupported: return {"invalid_request_error", "unsupported_parameter"};
    case ApiErrorKind::not_built: return {"not_supported_error", nullptr};
    case ApiErrorKind::overloaded: return {"rate_limit_error", "queue_full"};
    case ApiErrorKind::rate_limited: return {"rate_limit_error", "rate_limit_exceeded"};
    case ApiErrorKind::no_quota: return {"insufficient_quota", "insufficient_quota"};
    case ApiErrorKind::draining:
    case ApiErrorKind::busy: return {"unavailable_error", nullptr};
    case ApiErrorKind::time_limit: return {"timeout_error", nullptr};
    case ApiErrorKind::no_storage: return {"server_error", "no_storage"};
    case ApiErrorKind::internal: return {"server_error", nullptr};
    default: return {"invalid_request_error", nullptr};
  }
}

HttpReply refuse(const ApiError& error) {
  return {.status = http_status(error.kind), .body = to_text(openai_error_json(error))};
}
std::string refuse_in_stream(const ApiError& error) { return sse_data(openai_error_json(error)); }

Handled list_models(Call& call) {
  if (asks_as_anthropic(call.request)) return list_models_as_anthropic(call);
  Json data = Json::array();
  for (const ModelStatus& model : call.service.models().list()) {
    data.push_back(model_entry(call.service, model, model.name));
    for (const std::string& alias : model.aliases) data.push_back(model_entry(call.service, model, alias));
    if (!model.served) continue;
    for (const AdapterInfo& adapter : model.served->engine->adapters()) {
      data.push_back(model_entry(call.service, model, adapter.name));
      data.back()["parent"] = model.name;
    }
  }
  return json_reply({{"object", "list"}, {"data", std::move(data)}});
}

Handled show_model(Call& call) {
  if (asks_as_anthropic(call.request)) return show_model_as_anthropic(call);
  const auto name = call.service.models().resolve(call.rest);
  if (name) {
    for (const ModelStatus& model : call.service.models().list())
      if (model.name == *name) return json_reply(model_entry(call.service, model, call.rest));
  }
  return call.service.no_such_model(call.rest);
}

}  // namespace

const Dialect kOpenAi = {"OpenAI",
                         "Errors are `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`; `param` names the "
                         "field. Streams are server-sent events that end with `data: [DONE]`; an error in a stream is "
                         "sent as a final `data: {\"error\": ...}`.",
                         refuse, refuse_in_stream};

Json openai_error_json(const ApiError& error) {
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

Json openai_envelope(const Answer& answer, const char* object, Json choices) {
  return {{"id", answer.id},
          {"object", object},
          {"created", answer.created},
          {"model", answer.model_name},
          {"system_fingerprint", "millrace"},
          {"choices", std::move(choices)}};
}

const std::string& openai_chunk_head(Answer& answer, const char* object) {
  if (answer.chunk_head.empty()) {
    answer.chunk_head = "data: " + to_text(openai_envelope(answer, object, Json::array()));
    answer.chunk_head.resize(answer.chunk_head.size() - 2);  // "]}"
  }
  return answer.chunk_head;
}

const char* openai_chunk_tail(const Answer& answer) {
  return answer.params.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

const char* openai_finish(const Answer& answer, const Choice& choice) {
  if (choice.finish != FinishReason::stop) return "length";
  if (choice.calls.empty()) return "stop";
  return answer.params.tools.old_form ? "function_call" : "tool_calls";
}

void append_openai_logprob(std::string& out, const Answer& answer, const ChosenToken& chosen, bool top) {
  const auto one = [&](TokenId token, float logprob) {
    out += "{\"token\":";
    append_json_text(out, token_text(*answer.model, token));
    out += ",\"logprob\":";
    append_logprob(out, logprob);
    out += ",\"bytes\":";
    append_token_bytes(out, *answer.model, token);
  };
  one(chosen.token, chosen.logprob);
  if (top) {
    out += ",\"top_logprobs\":[";
    for (const TokenLogprob& other : chosen.top) {
      if (&other != chosen.top.data()) out += ',';
      one(other.token, other.logprob);
      out += '}';
    }
    out += ']';
  }
  out += '}';
}

Json openai_logprobs(Answer& answer, std::span<const ChosenToken> tokens) {
  return answer.late.add(tokens.size(), [&answer, tokens](std::string& out, size_t token) {
    append_openai_logprob(out, answer, tokens[token]);
  });
}

Json openai_stop_reason(const Choice& choice) {
  if (!choice.stopped_by.empty()) return choice.stopped_by;
  return choice.stop_token >= 0 ? Json(choice.stop_token) : Json();
}

Json openai_prompt_logprobs(Answer& answer, size_t prompt) {
  const std::vector<ChosenToken>& tokens = answer.prompt_logprobs[prompt];
  return answer.late.add(tokens.size(), [&answer, &tokens](std::string& out, size_t at) {
    if (at == 0) {  // the first token has no context, so no log-probability
      out += "null";
      return;
    }
    const auto one = [&](TokenId token, float logprob, int64_t rank) {
      out += out.back() == '{' ? "\"" : ",\"";
      out.append(std::to_string(token)).append("\":{\"logprob\":");
      append_logprob(out, logprob);
      out.append(",\"rank\":").append(rank > 0 ? std::to_string(rank) : "null").append(",\"decoded_token\":");
      append_json_text(out, token_text(*answer.model, token));
      out += '}';
    };
    const ChosenToken& chosen = tokens[at];
    out += '{';
    int64_t rank = 0;
    for (const TokenLogprob& top : chosen.top) one(top.token, top.logprob, ++rank);
    if (std::ranges::find(chosen.top, chosen.token, &TokenLogprob::token) == chosen.top.end())
      one(chosen.token, chosen.logprob, 0);
    out += '}';
  });
}

Json openai_usage(const Answer& answer) {
  int64_t generated = 0, reasoning = 0, drafted = 0, accepted = 0;
  bool ended = true;
  for (const Choice& choice : answer.choices) {
    generated += choice.generated_tokens;
    reasoning += choice.reasoning_tokens;
    drafted += choice.drafted_tokens;
    accepted += choice.accepted_tokens;
    ended &= choice.finish != FinishReason::none;
  }
  if (ended) generated = answer.generated_tokens;
  Json out = {{"prompt_tokens", answer.prompt_tokens},
              {"completion_tokens", generated},
              {"total_tokens", answer.prompt_tokens + generated},
              {"prompt_tokens_details", {{"cached_tokens", answer.cached_tokens}}}};
  if (answer.params.truncated_tokens > 0)
    out["prompt_tokens_details"]["truncated_tokens"] = answer.params.truncated_tokens;
  if (reasoning > 0) out["completion_tokens_details"] = {{"reasoning_tokens", reasoning}};
  if (drafted > 0 || !answer.params.prediction.empty()) {
    out["completion_tokens_details"]["accepted_prediction_tokens"] = accepted;
    out["completion_tokens_details"]["rejected_prediction_tokens"] = drafted - accepted;
  }
  return out;
}

std::vector<Endpoint> openai_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST",
                  .path = "/v1/chat/completions",
                  .dialect = &kOpenAi,
                  .summary = "Generates the next message of a conversation.",
                  .fields = chat_completion_fields(),
                  .prepare = prepare_chat_completion,
                  .format = &kChatCompletions});
  list.push_back({.method = "POST",
                  .path = "/v1/completions",
                  .dialect = &kOpenAi,
                  .summary = "Continues a text.",
                  .fields = completion_fields(),
                  .prepare = prepare_completion,
                  .format = &kCompletions});
  list.push_back({.method = "POST",
                  .path = "/v1/chat/completions/input_tokens",
                  .dialect = &kOpenAi,
                  .summary = "Counts the tokens of a conversation.",
                  .fields = chat_completion_fields(),
                  .prepare = prepare_chat_completion,
                  .handle = count_input_tokens});
  list.push_back(
      {.method = "GET",
       .path = "/v1/models",
       .dialect = &kOpenAi,
       .summary = "Lists the served models under all of their names, loaded or not; with an anthropic-version header "
                  "in the format of Anthropic's API, paged by `?limit=`, `?after_id=` and `?before_id=`.",
       .handle = list_models,
       .without_model = true});
  list.push_back({.method = "GET",
                  .path = "/v1/models/*",
                  .dialect = &kOpenAi,
                  .summary = "Describes one of them.",
                  .handle = show_model,
                  .without_model = true});
  return list;
}

}  // namespace millrace
