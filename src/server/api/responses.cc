// POST /v1/responses: OpenAI's later API, in which an answer is a list of items: thinking, a message, calls of functions.
//
//   stream   response.created, response.in_progress; for each item response.output_item.added, its parts' and deltas' events,
//            response.output_item.done; then response.completed or response.incomplete. No [DONE].
#include <fmt/format.h>

#include "server/api/message_rules.h"
#include "server/api/openai.h"
#include "server/api/responses_input.h"
#include "server/api/sampling_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/tool_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

// A response is there for the key that asked for it alone.
std::string stored_as(const std::string& owner, const std::string& id) { return owner + "\n" + id; }
std::string owner_of(const HttpRequest& request) { return request.account ? request.account->key().name : ""; }

using Wrong = std::optional<ApiError>;
using Kind = AnswerPiece::Kind;

Json usage_json(const Answer& answer) {
  const Choice& choice = answer.choices.front();
  Json out = {{"input_tokens", answer.prompt_tokens},
              {"input_tokens_details", {{"cached_tokens", answer.cached_tokens}}},
              {"output_tokens", answer.generated_tokens},
              {"output_tokens_details", {{"reasoning_tokens", choice.reasoning_tokens}}},
              {"total_tokens", answer.prompt_tokens + answer.generated_tokens}};
  if (answer.ask.truncated_tokens > 0) out["input_tokens_details"]["truncated_tokens"] = answer.ask.truncated_tokens;
  return out;
}

Json response_json(const Answer& answer, const char* status, Json output) {
  Json out = {{"id", answer.id}, {"object", "response"}, {"created_at", answer.created}, {"status", status}, {"error", nullptr}, {"incomplete_details", nullptr}};
  for (const auto& [name, value] : answer.ask.kept["request"].items()) out[name] = value;
  out["model"] = answer.model_name;
  out["output"] = std::move(output);
  out["store"] = answer.ask.store != nullptr;
  out["usage"] = nullptr;
  return out;
}

const char* item_status(const Choice& choice) { return choice.finish == FinishReason::stop || choice.finish == FinishReason::none ? "completed" : "incomplete"; }

Json text_part(const std::string& text) { return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}}; }
Json message_item(const std::string& id, const char* status, Json content) {
  return {{"id", "msg_" + id}, {"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", std::move(content)}};
}
Json reasoning_item(const std::string& id, const std::string& text) {
  Json content = Json::array();
  if (!text.empty()) content.push_back({{"type", "reasoning_text"}, {"text", text}});
  return {{"id", "rs_" + id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", std::move(content)}};
}
Json call_item(const std::string& id, const ToolCall& call, const char* status) {
  return {{"id", "fc_" + id}, {"type", "function_call"}, {"status", status}, {"arguments", call.arguments}, {"call_id", call.id}, {"name", call.name}};
}

// The whole answer; kept where it was asked for.
Json ended(Answer& answer, Json output) {
  const Choice& choice = answer.choices.front();
  const bool complete = choice.finish == FinishReason::stop;
  Json out = response_json(answer, complete ? "completed" : "incomplete", std::move(output));
  if (!complete) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["usage"] = usage_json(answer);
  if (answer.ask.store) {
    Json messages = std::move(answer.ask.kept["messages"]);
    Wrong wrong = add_input_items(out["output"], messages, "output");
    if (!wrong) answer.ask.store->put(stored_as(answer.ask.kept["owner"].get<std::string>(), answer.id), {out, std::move(messages)});
  }
  return out;
}

Json whole(Answer& answer) {
  const Choice& choice = answer.choices.front();
  const std::string id = answer.id.substr(5);
  Json output = Json::array();
  if (!choice.reasoning.empty()) output.push_back(reasoning_item(id, choice.reasoning));
  if (!choice.text.empty() || choice.calls.empty()) output.push_back(message_item(id, item_status(choice), Json::array({text_part(choice.text)})));
  for (size_t i = 0; i < choice.calls.size(); ++i) output.push_back(call_item(id + std::to_string(i), choice.calls[i], item_status(choice)));
  return ended(answer, std::move(output));
}

// What a stream writes. Items are kept in answer.items, the last one of which is open while the choice's part_kind is set.
class Events {
 public:
  explicit Events(Answer& answer) : answer_(answer), choice_(answer.choices.front()) {}

  void event(const char* type, Json data) {
    Json out = {{"type", type}, {"sequence_number", answer_.events++}};
    for (auto& [name, value] : data.items()) out[name] = std::move(value);
    bytes_ += sse_event(type, out);
  }

  void piece(const AnswerPiece& piece) {
    switch (piece.kind) {
      case Kind::text:
      case Kind::reasoning:
        if (choice_.part_kind != piece.kind) {
          close();
          open(piece.kind);
        }
        text(piece.kind) += piece.text;
        return part_event(piece.kind == Kind::text ? "response.output_text.delta" : "response.reasoning_text.delta", "delta", piece.text);
      case Kind::call: {
        close();
        const ToolCall call{choice_.calls[choice_.streamed_calls++].id, piece.text, ""};
        return add(Kind::call, call_item(item_id(), call, "in_progress"));
      }
      case Kind::arguments:
        if (choice_.part_kind != Kind::call) return;
        item()["arguments"] = item()["arguments"].get<std::string>() + piece.text;
        return event("response.function_call_arguments.delta", {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"delta", piece.text}});
      case Kind::call_end: return close();
    }
  }

  // Ends the item that is open.
  void close() {
    if (!choice_.part_kind) return;
    const Kind kind = *choice_.part_kind;
    choice_.part_kind.reset();
    if (kind == Kind::call) {
      item()["status"] = item_status(choice_);
      event("response.function_call_arguments.done", {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"name", item()["name"]}, {"arguments", item()["arguments"]}});
    } else {
      part_event(kind == Kind::text ? "response.output_text.done" : "response.reasoning_text.done", "text", text(kind));
      event("response.content_part.done", {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"content_index", 0}, {"part", item()["content"][0]}});
      if (kind == Kind::text) item()["status"] = item_status(choice_);
    }
    event("response.output_item.done", {{"output_index", choice_.part}, {"item", item()}});
  }

  // A message without text, where there is nothing else.
  void at_least_one() {
    if (!answer_.items.empty()) return;
    open(Kind::text);
    close();
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string item_id() const { return answer_.id.substr(5) + std::to_string(answer_.items.size()); }
  Json& item() { return answer_.items.back(); }
  std::string& text(Kind) { return item()["content"][0]["text"].get_ref<std::string&>(); }

  void add(Kind kind, Json item) {
    answer_.items.push_back(std::move(item));
    choice_.part = static_cast<int64_t>(answer_.items.size()) - 1;
    choice_.part_kind = kind;
    event("response.output_item.added", {{"output_index", choice_.part}, {"item", answer_.items.back()}});
  }
  void open(Kind kind) {
    add(kind, kind == Kind::text ? message_item(item_id(), "in_progress", Json::array()) : reasoning_item(item_id(), ""));
    item()["content"].push_back(kind == Kind::text ? text_part("") : Json{{"type", "reasoning_text"}, {"text", ""}});
    event("response.content_part.added", {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"content_index", 0}, {"part", item()["content"][0]}});
  }
  void part_event(const char* type, const char* key, const std::string& text) {
    Json data = {{"item_id", item()["id"]}, {"output_index", choice_.part}, {"content_index", 0}, {key, text}};
    if (choice_.part_kind == Kind::text || item()["type"] == "message") data["logprobs"] = Json::array();
    event(type, std::move(data));
  }

  Answer& answer_;
  Choice& choice_;
  std::string bytes_;
};

std::string begin(Answer& answer) {
  answer.items = Json::array();
  Events events(answer);
  const Json response = response_json(answer, "in_progress", Json::array());
  events.event("response.created", {{"response", response}});
  events.event("response.in_progress", {{"response", response}});
  return events.take();
}

std::string delta(Answer& answer, size_t, const Delta& delta) {
  Events events(answer);
  if (delta.pieces.empty() && !delta.text.empty()) events.piece({Kind::text, delta.text});
  for (const AnswerPiece& piece : delta.pieces) events.piece(piece);
  if (delta.finish != FinishReason::none) events.close();
  return events.take();
}

std::string end(Answer& answer) {
  Events events(answer);
  events.at_least_one();
  Json response = ended(answer, answer.items);
  add_weakened(answer, response);
  const char* type = response["status"] == "completed" ? "response.completed" : "response.incomplete";
  events.event(type, {{"response", std::move(response)}});
  return events.take();
}

const AnswerFormat kResponse = {"resp_", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

std::string refuse_in_stream(const ApiError& error) {
  Json data = {{"type", "error"}, {"sequence_number", 0}, {"code", nullptr}, {"message", error.message}, {"param", nullptr}};
  data["code"] = openai_error_json(error)["error"]["type"];
  if (!error.field.empty()) data["param"] = error.field;
  return sse_event("error", data);
}
HttpReply refuse(const ApiError& error) { return kOpenAi.refuse(error); }

// "text": {"format": {...}}; "reasoning": {"effort": ...}
std::vector<Field> wish_fields() {
  Field text{"text", kObject, "{\"format\": {\"type\": \"text\"}}", "format: what the answer is written like: text, json_object, or {\"type\": \"json_schema\", \"name\", \"schema\"}"};
  text.set = [](const Json& value, Ask& ask) -> Wrong {
    if (!value.contains("format") || value["format"].is_null()) return std::nullopt;
    if (!value["format"].is_object()) return ApiError::bad("text.format", "must be an object");
    return set_response_format(ask, value["format"], "text.format");
  };
  Field reasoning{"reasoning", kObject, "the template's", "effort: how long to think (none, minimal, low, medium, high), for chat templates that look at it"};
  reasoning.set = [](const Json& value, Ask& ask) -> Wrong {
    if (!value.contains("effort") || value["effort"].is_null()) return std::nullopt;
    if (!value["effort"].is_string()) return ApiError::bad("reasoning.effort", "must be a string");
    set_reasoning_effort(ask, value["effort"].get<std::string>());
    return std::nullopt;
  };
  return {text, reasoning};
}

std::vector<Field> prompt_fields() {
  Field input{"input", kText | kList, "", "the person's message, or items: messages, function_call, function_call_output and reasoning"};
  input.most = 1 << 16;
  input.set = [](const Json& value, Ask& ask) -> Wrong {
    ask.messages = Json::array();
    return add_input_items(value, ask.messages, "input");
  };
  Field instructions{"instructions", kText, "none", "how the assistant should answer; those of an earlier response do not go on"};
  Field previous{"previous_response_id", kText, "none", "a stored response that this one goes on from"};
  Field truncation{"truncation", kText, "disabled", "auto: a conversation that does not fit loses its beginning, and the answer says how much"};
  truncation.choices = {"auto", "disabled"};
  truncation.set = [](const Json& value, Ask& ask) -> Wrong {
    if (value == "auto") ask.truncate_prompt = -1;
    return std::nullopt;
  };
  return joined({{model_field(), input, instructions, previous, truncation}, flat_tool_fields(), wish_fields()});
}

std::vector<Field> response_fields() {
  Field store{"store", kBoolean, "true", "keep the response for previous_response_id and GET, within the server's bounds"};
  const auto no_logprobs = [](const Json& value) { return value.is_number() && value.get<double>() == 0; };
  return joined({prompt_fields(),
                 {max_tokens_field("max_output_tokens", "-1"), stream_field(false), store, seed_field(false), stop_field("stop"), Field{"metadata", kObject, "{}", "comes back with the response"},
                  Field{"user", kText, "", "of no effect"}},
                 sampling_fields(),
                 extension_fields(),
                 {unsupported_field("background", is_false), unsupported_field("conversation", is_empty), unsupported_field("prompt", is_empty), unsupported_field("top_logprobs", no_logprobs)}});
}

Wrong prepare(const Json& body, Ask& ask) {
  if (!body.contains("max_output_tokens")) ask.request.max_tokens = -1;
  if (ask.messages.is_null()) ask.messages = Json::array();
  if (ask.messages.empty() && !body.contains("previous_response_id") && !body.contains("instructions")) return ApiError::bad("input", "is missing");
  Json echo = Json::object();
  const std::pair<const char*, Json> shown[] = {{"instructions", nullptr}, {"max_output_tokens", nullptr}, {"parallel_tool_calls", true}, {"previous_response_id", nullptr},
                                                {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}}, {"temperature", ask.request.sampling.temperature},
                                                {"text", {{"format", {{"type", "text"}}}}}, {"tool_choice", "auto"}, {"tools", Json::array()},
                                                {"top_p", ask.request.sampling.top_p}, {"truncation", "disabled"}, {"metadata", Json::object()}};
  for (const auto& [name, fallback] : shown) echo[name] = body.contains(name) ? body[name] : fallback;
  ask.kept = {{"request", std::move(echo)}};
  return check_tools(ask);
}

Wrong look_up(Call& call) {
  const Service& service = call.service;
  const Json& body = call.body;
  Ask& ask = call.ask;
  Json messages = Json::array();
  if (body.contains("previous_response_id")) {
    auto earlier = service.responses().get(stored_as(owner_of(call.request), body["previous_response_id"].get<std::string>()));
    if (!earlier) return ApiError::bad("previous_response_id", service.responses().keeps() ? "there is no such response; it may have made room for later ones" : "this server keeps no responses");
    messages = std::move(earlier->messages);
  }
  const size_t earlier_messages = messages.size();
  for (Json& message : ask.messages) messages.push_back(std::move(message));
  if (auto wrong = check_tool_messages(messages, earlier_messages, "input", "call_id")) return wrong;
  if (messages.empty() && !body.contains("instructions")) return ApiError::bad("input", "is empty");
  if (body.value("store", true) && service.responses().keeps()) {
    ask.store = service.shared_responses();
    ask.kept["messages"] = messages;
    ask.kept["owner"] = owner_of(call.request);
  }
  if (body.contains("instructions")) messages.insert(messages.begin(), Json{{"role", "system"}, {"content", body["instructions"]}});
  ask.messages = std::move(messages);
  return std::nullopt;
}

Handled show(Call& call) {
  auto found = call.service.responses().get(stored_as(owner_of(call.request), call.rest));
  if (!found) return ApiError{ApiErrorKind::not_found, fmt::format("response '{}' is not kept here", call.rest.substr(0, 100)), "response_id"};
  return json_reply(found->response);
}

Handled forget(Call& call) {
  if (!call.service.responses().erase(stored_as(owner_of(call.request), call.rest))) return ApiError{ApiErrorKind::not_found, fmt::format("response '{}' is not kept here", call.rest.substr(0, 100)), "response_id"};
  return json_reply({{"id", call.rest}, {"object", "response"}, {"deleted", true}});
}

}  // namespace

Handled count_input_tokens(Call& call) {
  if (auto wrong = call.service.make_prompts(call.ask); wrong && wrong->kind != ApiErrorKind::too_long) return *wrong;
  return json_reply({{"object", "response.input_tokens"}, {"input_tokens", call.ask.prompts.front().tokens.size()}});
}

const Dialect kResponses = {"OpenAI responses",
                            "Errors as OpenAI's. Streams are named server-sent events that end with `response.completed` or `response.incomplete`; an error in a stream is a last "
                            "`event: error`.",
                            refuse, refuse_in_stream};

std::vector<Endpoint> responses_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST", .path = "/v1/responses", .dialect = &kResponses, .summary = "Answers a conversation with items: thinking, a message, calls of functions.",
                  .fields = response_fields(), .prepare = prepare, .look_up = look_up, .format = &kResponse});
  list.push_back({.method = "POST", .path = "/v1/responses/input_tokens", .dialect = &kResponses, .summary = "How many tokens a conversation has.", .fields = prompt_fields(),
                  .prepare = prepare, .look_up = look_up, .handle = count_input_tokens});
  list.push_back({.method = "GET", .path = "/v1/responses/*", .dialect = &kResponses, .summary = "A stored response.", .handle = show, .without_model = true});
  list.push_back({.method = "DELETE", .path = "/v1/responses/*", .dialect = &kResponses, .summary = "Forgets a stored response.", .handle = forget, .without_model = true});
  return list;
}

}  // namespace millrace
