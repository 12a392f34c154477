// POST /v1/responses: OpenAI's newer API, in which an answer is a list of items: thinking, a message, function calls.
//
//   stream   response.created, response.in_progress; for each item response.output_item.added, the events of its parts
//            and deltas, response.output_item.done; then response.completed or response.incomplete. No [DONE].
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "server/api/known_fields.h"
#include "server/api/message_rules.h"
#include "server/api/openai.h"
#include "server/api/query.h"
#include "server/api/responses_events.h"
#include "server/api/responses_input.h"
#include "server/api/sampling_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/tool_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

// A stored response is visible only to the key that created it.
std::string stored_as(const std::string& owner, const std::string& id) { return owner + "\n" + id; }
std::string owner_of(const HttpRequest& request) { return request.account ? request.account->key().name : ""; }

// The bytes that one log-probability takes in `items`, the events, the text of the response and the store's copy
// together.
constexpr int64_t kKeptLogprobBytes = 1024;

using Wrong = std::optional<ApiError>;
using Kind = AnswerPiece::Kind;

Json usage_json(const Answer& answer) {
  const Choice& choice = answer.choices.front();
  Json out = {{"input_tokens", answer.prompt_tokens},
              {"input_tokens_details", {{"cached_tokens", answer.cached_tokens}}},
              {"output_tokens", answer.generated_tokens},
              {"output_tokens_details", {{"reasoning_tokens", choice.reasoning_tokens}}},
              {"total_tokens", answer.prompt_tokens + answer.generated_tokens}};
  if (answer.params.truncated_tokens > 0)
    out["input_tokens_details"]["truncated_tokens"] = answer.params.truncated_tokens;
  return out;
}

// The complete response; stored if requested.
Json ended(Answer& answer, Json output) {
  const Choice& choice = answer.choices.front();
  const bool complete = choice.finish == FinishReason::stop;
  Json out = response_json(answer, complete ? "completed" : "incomplete", std::move(output));
  if (!complete) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["usage"] = usage_json(answer);
  add_own_facts(answer, out);
  if (answer.params.store) {
    Json messages = std::move(answer.params.kept["messages"]);
    Wrong wrong = add_input_items(out["output"], messages, "output");
    if (!wrong)
      answer.params.store->put(answer.params.share.tenant,
                               stored_as(answer.params.kept["owner"].get<std::string>(), answer.id),
                               {out, std::move(messages), std::move(answer.params.kept["input"]), answer.deltas});
  }
  return out;
}

// Log-probabilities of the text's tokens. Tokens before the first piece belong to its kind, `first`. JSON, because the
// items of the response keep them (kKeptLogprobBytes).
Json text_logprobs(const Answer& answer, const std::vector<ChosenToken>& tokens, Kind first) {
  Json out = Json::array();
  for (const ChosenToken& chosen : tokens)
    if (chosen.kind.value_or(first) == Kind::text) {
      std::string text;
      append_openai_logprob(text, answer, chosen);
      out.push_back(parse_json(text));
    }
  return out;
}

Json whole(Answer& answer) {
  const Choice& choice = answer.choices.front();
  answer.items = answer.deltas = Json::array();
  std::optional<Kind> first;
  for (auto it = choice.logprobs.begin(); it != choice.logprobs.end() && !first; ++it) first = it->kind;
  const FinishReason finish = choice.finish;
  answer.choices.front().finish = FinishReason::none;  // all items but the last are complete
  ResponseEvents events(answer);
  if (!choice.reasoning.empty()) events.piece({Kind::reasoning, choice.reasoning});
  if (!choice.text.empty() || choice.calls.empty())
    events.piece({Kind::text, choice.text}, text_logprobs(answer, choice.logprobs, first.value_or(Kind::text)));
  for (const ToolCall& call : choice.calls) {
    events.piece({Kind::call, call.name});
    events.piece({Kind::arguments, call.arguments});
  }
  answer.choices.front().finish = finish;
  events.close();
  answer.deltas = Json::array();  // nothing was streamed
  return ended(answer, answer.items);
}

std::string begin(Answer& answer) {
  answer.items = answer.deltas = Json::array();
  ResponseEvents events(answer);
  const Json response = response_json(answer, "in_progress", Json::array());
  events.event("response.created", {{"response", response}});
  events.event("response.in_progress", {{"response", response}});
  return events.take();
}

std::string delta(Answer& answer, size_t, const Delta& delta) {
  ResponseEvents events(answer);
  std::vector<ChosenToken>& buffered = answer.choices.front().logprobs;  // of text that is still buffered
  if (delta.logprob) buffered.push_back(*delta.logprob);
  const auto logprobs = [&] { return text_logprobs(answer, std::exchange(buffered, {}), Kind::text); };
  if (delta.pieces.empty() && !delta.text.empty()) events.piece({Kind::text, delta.text}, logprobs());
  for (const AnswerPiece& piece : delta.pieces) {
    if (piece.kind != Kind::text)
      for (ChosenToken& chosen : buffered) chosen.kind = chosen.kind.value_or(piece.kind);
    events.piece(piece, piece.kind == Kind::text ? logprobs() : Json::array());
  }
  std::erase_if(buffered, [](const ChosenToken& chosen) { return chosen.kind && *chosen.kind != Kind::text; });
  if (delta.finish != FinishReason::none) events.close();
  return events.take();
}

std::string end(Answer& answer) {
  ResponseEvents events(answer);
  events.at_least_one();
  Json response = ended(answer, answer.items);
  const char* type = response["status"] == "completed" ? "response.completed" : "response.incomplete";
  events.event(type, {{"response", std::move(response)}});
  return events.take();
}

const AnswerFormat kResponse = {"resp_", "text/event-stream", ": ping\n\n", begin, delta, end,
                                whole,   kKeptLogprobBytes};

std::string refuse_in_stream(const ApiError& error) {
  Json data = {
      {"type", "error"}, {"sequence_number", 0}, {"code", nullptr}, {"message", error.message}, {"param", nullptr}};
  data["code"] = openai_error_json(error)["error"]["type"];
  if (!error.field.empty()) data["param"] = error.field;
  return sse_event("error", data);
}
HttpReply refuse(const ApiError& error) { return kOpenAi.refuse(error); }

// "text": {"format": {...}}; "reasoning": {"effort": ...}
std::vector<Field> format_and_reasoning_fields() {
  Field format{"format", kJsonObject, "{\"type\": \"text\"}",
               "output format: text, json_object, or {\"type\": \"json_schema\", \"name\", \"schema\"}"};
  format.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    return set_response_format(params, value, "text.format");
  };
  Field effort{"effort", kJsonText, "template default",
               "how much to think (none, minimal, low, medium, high), for chat templates that support it"};
  effort.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    set_reasoning_effort(params, value.get<std::string>());
    return std::nullopt;
  };
  const char* why = "thinking is returned in full, as the content of its item, where other servers send a summary";
  return {object_field("text", "output format", {format, verbosity_field("verbosity")}),
          object_field(
              "reasoning", "thinking options",
              {effort, ignored_field("summary", kJsonText, why), ignored_field("generate_summary", kJsonText, why)})};
}

std::vector<Field> prompt_fields() {
  Field input{"input", kJsonText | kJsonList, "",
              "the user's message, or items: messages, function_call, function_call_output and reasoning"};
  input.most = 1 << 16;
  input.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.messages = Json::array();
    return add_input_items(value, params.messages, "input");
  };
  Field instructions{"instructions", kJsonText, "none",
                     "system prompt; the instructions of an earlier response are not carried over"};
  Field previous{"previous_response_id", kJsonText, "none", "a stored response to continue from"};
  Field truncation{"truncation", kJsonText, "disabled",
                   "auto: a conversation that does not fit loses its beginning, and the response reports how much"};
  truncation.choices = {"auto", "disabled"};
  truncation.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value == "auto") params.truncate_prompt = -1;
    return std::nullopt;
  };
  return joined(
      {{model_field(), input, instructions, previous, truncation}, flat_tool_fields(), format_and_reasoning_fields()});
}

// `include`. All other values concern items that this server never returns.
Field include_field() {
  Field include{"include", kJsonTexts, "[]",
                "message.output_text.logprobs: log-probabilities of the text's tokens. reasoning.encrypted_content and "
                "the values of provider tools are accepted, and return nothing"};
  include.most = 64;
  include.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    static constexpr std::string_view kKnown[] = {"message.output_text.logprobs",
                                                  "reasoning.encrypted_content",
                                                  "file_search_call.results",
                                                  "web_search_call.results",
                                                  "web_search_call.action.sources",
                                                  "code_interpreter_call.outputs",
                                                  "computer_call_output.output.image_url",
                                                  "message.input_image.image_url"};
    for (const Json& name : value) {
      if (std::ranges::find(kKnown, name.get_ref<const std::string&>()) == std::end(kKnown))
        return ApiError::bad("include", fmt::format("'{}' cannot be included", name.get<std::string>().substr(0, 64)));
      if (name == kKnown[0]) params.request.sampling.logprobs = std::max<int64_t>(params.request.sampling.logprobs, 0);
    }
    return std::nullopt;
  };
  return include;
}

Field top_logprobs_field() {
  Field top{"top_logprobs", kJsonInteger, "0",
            "number of most likely tokens to return for each token of the text, with their log-probabilities"};
  top.min = 0;
  top.max = 20;
  top.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value > 0) params.request.sampling.logprobs = value.get<int64_t>();
    return std::nullopt;
  };
  return top;
}

std::vector<Field> response_fields() {
  Field store{"store", kJsonBoolean, "true",
              "store the response for previous_response_id and GET, within the server's limits"};
  return joined(
      {prompt_fields(),
       {max_tokens_field("max_output_tokens", "-1"), stream_field(false), store, seed_field(false), stop_field("stop"),
        Field{"metadata", kJsonObject, "{}", "returned with the response"}, top_logprobs_field(), include_field()},
       sampling_fields(),
       extension_fields(),
       other_response_fields()});
}

Wrong prepare(const Json& body, GenerationRequest& params) {
  if (!body.contains("max_output_tokens")) params.request.max_tokens = -1;
  if (params.messages.is_null()) params.messages = Json::array();
  if (params.messages.empty() && !body.contains("previous_response_id") && !body.contains("instructions"))
    return ApiError::bad("input", "is missing");
  Json echo = Json::object();
  const std::pair<const char*, Json> shown[] = {{"instructions", nullptr},
                                                {"max_output_tokens", nullptr},
                                                {"parallel_tool_calls", true},
                                                {"previous_response_id", nullptr},
                                                {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                                                {"temperature", params.request.sampling.temperature},
                                                {"text", {{"format", {{"type", "text"}}}}},
                                                {"tool_choice", "auto"},
                                                {"tools", Json::array()},
                                                {"top_p", params.request.sampling.top_p},
                                                {"top_logprobs", 0},
                                                {"truncation", "disabled"},
                                                {"metadata", Json::object()}};
  for (const auto& [name, fallback] : shown) echo[name] = body.contains(name) ? body[name] : fallback;
  params.kept = {{"request", std::move(echo)}};
  return check_tools(params);
}

Wrong look_up(Call& call) {
  const Service& service = call.service;
  const Json& body = call.body;
  GenerationRequest& params = call.params;
  Json messages = Json::array(), input = Json::array();
  if (body.contains("previous_response_id")) {
    auto earlier =
        service.responses().get(stored_as(owner_of(call.request), body["previous_response_id"].get<std::string>()));
    if (!earlier)
      return ApiError::bad("previous_response_id", service.responses().keeps()
                                                       ? "there is no such response; it may have been evicted"
                                                       : "this server does not store responses");
    messages = std::move(earlier->messages);
    input = std::move(earlier->input);
    for (Json& item : earlier->response["output"]) input.push_back(std::move(item));
  }
  const size_t earlier_messages = messages.size();
  for (Json& message : params.messages) messages.push_back(std::move(message));
  if (auto wrong = check_tool_messages(messages, earlier_messages, "input", "call_id")) return wrong;
  if (messages.empty() && !body.contains("instructions")) return ApiError::bad("input", "is empty");
  if (body.value("store", true) && service.responses().keeps()) {
    params.store = service.shared_responses();
    params.kept["messages"] = messages;
    params.kept["owner"] = owner_of(call.request);
    if (body.contains("input")) add_stored_items(body["input"], service.new_id(), input);
    params.kept["input"] = std::move(input);
  }
  if (body.contains("instructions"))
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", body["instructions"]}});
  params.messages = std::move(messages);
  return std::nullopt;
}

// /v1/responses/compact: the user's messages remain, everything else becomes a summary. Its text is opaque to clients,
// which send it back as an item of type compaction.
Json whole_compaction(Answer& answer) {
  const Choice& choice = answer.choices.front();
  Json output = std::move(answer.params.kept["messages"]);
  output.push_back({{"id", "cmp_" + answer.id.substr(5)}, {"type", "compaction"}, {"encrypted_content", choice.text}});
  return {{"id", answer.id},
          {"object", "response.compaction"},
          {"created_at", answer.created},
          {"output", std::move(output)},
          {"usage", usage_json(answer)}};
}

const AnswerFormat kCompaction = {"resp_", "text/event-stream", ": ping\n\n", begin, delta, end, whole_compaction};

Wrong look_up_compaction(Call& call) {
  call.body["store"] = false;
  if (auto wrong = look_up(call)) return wrong;
  GenerationRequest& params = call.params;
  Json kept = Json::array();
  const Json input = call.body.contains("input") ? call.body["input"] : Json::array();
  add_stored_items(input, call.service.new_id(), kept);
  std::erase_if(kept.get_ref<Json::array_t&>(),
                [](const Json& item) { return item["type"] != "message" || item.value("role", "") != "user"; });
  params.kept["messages"] = std::move(kept);
  params.tools = {};
  params.messages.push_back(
      {{"role", "user"},
       {"content",
        "Summarize this conversation for an assistant that will continue it without seeing it: what the user wants, "
        "what was decided and done, what is open, and every name, path and value that is still needed. Answer with the "
        "summary alone."}});
  return std::nullopt;
}

ApiError no_response(const std::string& id) {
  return {ApiErrorKind::not_found, fmt::format("there is no stored response '{}'", id.substr(0, 100)), "response_id"};
}

bool query_is(const HttpRequest& request, const char* name, bool* wrong) {
  const std::string value = query_value(request.query, name);
  *wrong = !value.empty() && value != "true" && value != "false";
  return value == "true";
}

// Streams a stored response by replaying its events, after ?starting_after=.
Handled show_as_stream(const std::string& id, StoredResponse stored, const HttpRequest& request) {
  int64_t after = -1;
  if (const std::string text = query_value(request.query, "starting_after"); !text.empty()) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), after);
    if (failed != std::errc() || end != text.data() + text.size() || after < 0)
      return ApiError::bad("starting_after", "must be the number of an event");
  }
  return HttpReply{.content_type = kResponse.stream_type,
                   .headers = {{"Cache-Control", "no-cache"}},
                   .body = stored_response_events(id, std::move(stored), after)};
}

// {"object": "list", "data", "first_id", "last_id", "has_more"}: ?order=asc or desc, ?after=ID, ?limit= up to 100.
Handled list_input_items(Json items, const HttpRequest& request) {
  const std::string order = query_value(request.query, "order"), after = query_value(request.query, "after"),
                    count = query_value(request.query, "limit");
  if (!order.empty() && order != "asc" && order != "desc") return ApiError::bad("order", "must be asc or desc");
  size_t limit = 20;
  if (!count.empty()) {
    const auto [end, failed] = std::from_chars(count.data(), count.data() + count.size(), limit);
    if (failed != std::errc() || end != count.data() + count.size() || limit < 1 || limit > 100)
      return ApiError::bad("limit", "must be from 1 to 100");
  }
  if (order != "asc") std::reverse(items.begin(), items.end());
  size_t first = 0;
  if (!after.empty()) {
    while (first < items.size() && items[first]["id"] != after) ++first;
    if (first == items.size())
      return ApiError::bad("after", fmt::format("there is no item '{}'", after.substr(0, 100)));
    ++first;
  }
  Json data = Json::array();
  for (size_t i = first; i < std::min(items.size(), first + limit); ++i) data.push_back(std::move(items[i]));
  const Json first_id = data.empty() ? Json() : data.front()["id"], last_id = data.empty() ? Json() : data.back()["id"];
  const bool more = first + data.size() < items.size();
  return json_reply({{"object", "list"},
                     {"data", std::move(data)},
                     {"first_id", first_id},
                     {"last_id", last_id},
                     {"has_more", more}});
}

// ID, or ID/input_items.
Handled show(Call& call) {
  const std::string id = call.rest.substr(0, call.rest.find('/')), part = call.rest.substr(id.size());
  if (!part.empty() && part != "/input_items")
    return ApiError{ApiErrorKind::not_found, "unknown path; use ID or ID/input_items", ""};
  auto found = call.service.responses().get(stored_as(owner_of(call.request), id));
  if (!found) return no_response(id);
  if (!part.empty()) return list_input_items(std::move(found->input), call.request);
  bool bad_obfuscation = false, bad_stream = false;
  query_is(call.request, "include_obfuscation", &bad_obfuscation);  // permits padding, of which there is none
  const bool stream = query_is(call.request, "stream", &bad_stream);
  if (bad_obfuscation || bad_stream)
    return ApiError::bad(bad_obfuscation ? "include_obfuscation" : "stream", "must be true or false");
  if (stream) return show_as_stream(id, std::move(*found), call.request);
  if (!query_value(call.request.query, "starting_after").empty())
    return ApiError::bad("starting_after", "needs stream");
  return json_reply(found->response);
}

// Only background responses can be cancelled, and there are none; closing the connection ends any other.
Handled cancel(Call& call) {
  constexpr std::string_view kCancel = "/cancel";
  if (!call.rest.ends_with(kCancel)) return ApiError{ApiErrorKind::not_found, "unknown path; use ID/cancel", ""};
  const std::string id = call.rest.substr(0, call.rest.size() - kCancel.size());
  if (!call.service.responses().get(stored_as(owner_of(call.request), id))) return no_response(id);
  return ApiError::bad(
      "response_id",
      "has ended; only background responses can be cancelled, and closing the connection ends one that streams");
}

Handled forget(Call& call) {
  if (!call.service.responses().erase(stored_as(owner_of(call.request), call.rest))) return no_response(call.rest);
  return json_reply({{"id", call.rest}, {"object", "response"}, {"deleted", true}});
}

}  // namespace

Handled count_input_tokens(Call& call) {
  if (auto wrong = call.service.make_prompts(call.params); wrong && wrong->kind != ApiErrorKind::too_long)
    return *wrong;
  return json_reply({{"object", "response.input_tokens"}, {"input_tokens", call.params.prompts.front().tokens.size()}});
}

const Dialect kResponses = {
    "OpenAI responses",
    "Errors are OpenAI's. Streams are named server-sent events that end with `response.completed` or "
    "`response.incomplete`; an error in a stream is sent as a final `event: error`.",
    refuse, refuse_in_stream};

std::vector<Endpoint> responses_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST",
                  .path = "/v1/responses",
                  .dialect = &kResponses,
                  .summary = "Answers a conversation with items: thinking, a message, function calls.",
                  .fields = response_fields(),
                  .prepare = prepare,
                  .look_up = look_up,
                  .format = &kResponse});
  list.push_back({.method = "POST",
                  .path = "/v1/responses/input_tokens",
                  .dialect = &kResponses,
                  .summary = "Counts the tokens of a conversation.",
                  .fields = joined({prompt_fields(), other_response_count_fields()}),
                  .prepare = prepare,
                  .look_up = look_up,
                  .handle = count_input_tokens});
  list.push_back({.method = "POST",
                  .path = "/v1/responses/compact",
                  .dialect = &kResponses,
                  .summary = "Replaces a conversation by its user's messages and a summary of the rest, as items.",
                  .fields = joined({prompt_fields(),
                                    {max_tokens_field("max_output_tokens", "-1"), seed_field(false)},
                                    sampling_fields(),
                                    openai_account_fields(),
                                    other_response_count_fields()}),
                  .prepare = prepare,
                  .look_up = look_up_compaction,
                  .format = &kCompaction});
  list.push_back({.method = "GET",
                  .path = "/v1/responses/*",
                  .dialect = &kResponses,
                  .summary =
                      "Returns a stored response; with `?stream=true` replays its events, from the one after "
                      "`?starting_after=`. `ID/input_items` lists its input, by `?order=`, `?after=` and `?limit=`.",
                  .handle = show,
                  .without_model = true});
  list.push_back(
      {.method = "POST",
       .path = "/v1/responses/*",
       .dialect = &kResponses,
       .summary =
           "`ID/cancel` is rejected: a stored response has ended, and closing the connection ends one that has not.",
       .handle = cancel,
       .without_model = true,
       .raw_body = true});
  list.push_back({.method = "DELETE",
                  .path = "/v1/responses/*",
                  .dialect = &kResponses,
                  .summary = "Deletes a stored response.",
                  .handle = forget,
                  .without_model = true});
  return list;
}

}  // namespace millrace
