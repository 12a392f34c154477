// Anthropic's API: messages, and counting their tokens.
//
//   stream   message_start; for each block of text, thinking or tool use content_block_start, content_block_delta ...,
//            content_block_stop; then message_delta, message_stop
#include <fmt/format.h>

#include "server/api/api.h"
#include "server/api/known_fields.h"
#include "server/api/message_rules.h"
#include "server/api/sampling_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/tool_fields.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;
using Kind = AnswerPiece::Kind;

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
    case ApiErrorKind::draining:
    case ApiErrorKind::busy: return {529, "overloaded_error"};
    case ApiErrorKind::time_limit: return {504, "timeout_error"};
    case ApiErrorKind::no_storage: return {507, "api_error"};
    case ApiErrorKind::internal: return {500, "api_error"};
    default: return {http_status(kind), "invalid_request_error"};
  }
}

Json error_json(const ApiError& error) {
  Json inner = {{"type", shape_of(error.kind).type}, {"message", error.message}};
  // The SDK's message threads continue without a thread when they read these details.
  if (error.kind == ApiErrorKind::unsupported && error.field == "thread")
    inner["details"] = {{"error_code", "thread_unsupported_request"}, {"unsupported", Json::array({"thread"})}};
  return {{"type", "error"}, {"error", std::move(inner)}};
}
HttpReply refuse(const ApiError& error) {
  return {.status = shape_of(error.kind).status, .body = to_text(error_json(error))};
}
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
  if (!choice.stopped_by.empty()) return "stop_sequence";
  return choice.calls.empty() ? "end_turn" : "tool_use";
}

Json stop_sequence(const Choice& choice) { return choice.stopped_by.empty() ? Json() : Json(choice.stopped_by); }

std::string begin(Answer& answer) {
  return sse_event("message_start",
                   {{"type", "message_start"}, {"message", message(answer, Json::array(), nullptr, nullptr, 0)}});
}

std::string begin_block(Choice& choice, Kind kind, Json block) {
  choice.part_kind = kind;
  return sse_event("content_block_start",
                   {{"type", "content_block_start"}, {"index", ++choice.part}, {"content_block", std::move(block)}});
}

std::string block_delta(const Choice& choice, Json delta) {
  return sse_event("content_block_delta",
                   {{"type", "content_block_delta"}, {"index", choice.part}, {"delta", std::move(delta)}});
}

std::string end_block(Choice& choice) {
  if (!choice.part_kind) return "";
  std::string out =
      choice.part_kind == Kind::reasoning ? block_delta(choice, {{"type", "signature_delta"}, {"signature", ""}}) : "";
  choice.part_kind.reset();
  return out + sse_event("content_block_stop", {{"type", "content_block_stop"}, {"index", choice.part}});
}

std::string write_piece(const Answer& answer, Choice& choice, const AnswerPiece& piece) {
  std::string out;
  switch (piece.kind) {
    case Kind::text:
      if (choice.part_kind != Kind::text) {
        out = end_block(choice);
        out += begin_block(choice, Kind::text, {{"type", "text"}, {"text", ""}});
      }
      return out + block_delta(choice, {{"type", "text_delta"}, {"text", piece.text}});
    case Kind::reasoning:
      if (!answer.params.reasoning.shown) return "";
      if (choice.part_kind != Kind::reasoning) {
        out = end_block(choice);
        out += begin_block(choice, Kind::reasoning, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      }
      return out + block_delta(choice, {{"type", "thinking_delta"}, {"thinking", piece.text}});
    case Kind::call: {
      out = end_block(choice);
      const ToolCall& call = choice.calls[choice.streamed_calls++];
      return out + begin_block(choice, Kind::call,
                               {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
    }
    case Kind::arguments:
      return choice.part_kind == Kind::call
                 ? block_delta(choice, {{"type", "input_json_delta"}, {"partial_json", piece.text}})
                 : "";
    case Kind::call_end: return end_block(choice);
  }
  return out;
}

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  std::string out;
  if (delta.pieces.empty() && !delta.text.empty()) return write_piece(answer, choice, {Kind::text, delta.text});
  for (const AnswerPiece& piece : delta.pieces) out += write_piece(answer, choice, piece);
  return out;
}

std::string end(Answer& answer) {
  Choice& choice = answer.choices.front();
  std::string out = end_block(choice);
  if (choice.part < 0) {
    out = begin_block(choice, Kind::text, {{"type", "text"}, {"text", ""}});
    out += end_block(choice);
  }
  Json last = {{"type", "message_delta"},
               {"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
               {"usage", usage(answer, answer.generated_tokens)}};
  add_own_facts(answer, last);
  return out + sse_event("message_delta", last) + sse_event("message_stop", {{"type", "message_stop"}});
}

Json whole(Answer& answer) {
  const Choice& choice = answer.choices.front();
  Json content = Json::array();
  if (!choice.reasoning.empty() && answer.params.reasoning.shown)
    content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
  if (!choice.text.empty() || choice.calls.empty()) content.push_back({{"type", "text"}, {"text", choice.text}});
  for (const ToolCall& call : choice.calls) {
    Json input = parse_json(call.arguments);
    if (!input.is_object()) input = Json::object();  // cut off by max_tokens
    content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
  }
  return message(answer, std::move(content), stop_reason(choice), stop_sequence(choice), answer.generated_tokens);
}

const AnswerFormat kMessages = {"msg_", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

// The blocks of one message, collected for the chat template's messages.
struct ReadBlocks {
  std::string text, thinking;
  Json calls = Json::array();    // by the assistant
  Json results = Json::array();  // of tools; each becomes a message
};

Wrong read_text(const Json& block, const std::string& where, const char* key, std::string* text) {
  if (!block.contains(key) || !block[key].is_string()) return ApiError::bad(where + "." + key, "must be a string");
  *text += block[key].get_ref<const std::string&>();
  return std::nullopt;
}

Wrong read_blocks(const std::string& where, const Json& content, ReadBlocks* out);

// Removes the line of Claude Code's system prompt that changes with each request: with it, no two prompts would share
// more than their first tokens.
void drop_billing_line(Json& content, GenerationRequest& params) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  if (content.is_array())
    for (Json& block : content)
      if (block.is_object() && block.contains("text")) drop_billing_line(block["text"], params);
  if (!content.is_string()) return;
  auto& text = content.get_ref<std::string&>();
  for (size_t at = 0; (at = text.find(kBilling, at)) != std::string::npos;) {
    if (at > 0 && text[at - 1] != '\n') {
      at += kBilling.size();
      continue;
    }
    const size_t end = text.find('\n', at);
    text.erase(at, end == std::string::npos ? end : end + 1 - at);
    if (params.dropped.empty())
      params.dropped.emplace_back("system: the line x-anthropic-billing-header, which differs in each request");
  }
}

Wrong read_block(const std::string& name, const Json& block, ReadBlocks* out) {
  if (!block.is_object() || !block.contains("type") || !block["type"].is_string())
    return ApiError::bad(name, "must be an object with a \"type\"");
  const auto& type = block["type"].get_ref<const std::string&>();
  if (type == "text") return read_text(block, name, "text", &out->text);
  if (type == "thinking") return read_text(block, name, "thinking", &out->thinking);
  if (type == "redacted_thinking") return std::nullopt;
  if (type == "tool_use") {
    std::string id, tool;
    if (auto wrong = read_text(block, name, "id", &id)) return wrong;
    if (auto wrong = read_text(block, name, "name", &tool)) return wrong;
    Json input = block.contains("input") ? block["input"] : Json::object();
    if (!input.is_object()) return ApiError::bad(name + ".input", "must be an object");
    out->calls.push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", tool}, {"arguments", std::move(input)}}}});
    return std::nullopt;
  }
  if (type == "tool_result") {
    std::string id;
    ReadBlocks inner;
    if (auto wrong = read_text(block, name, "tool_use_id", &id)) return wrong;
    if (block.contains("content"))
      if (auto wrong = read_blocks(name + ".content", block["content"], &inner)) return wrong;
    out->results.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", inner.text}});
    return std::nullopt;
  }
  return ApiError::unsupported(name, fmt::format("blocks of type '{}' are not supported", type));
}

// A string, or an array of blocks.
Wrong read_blocks(const std::string& where, const Json& content, ReadBlocks* out) {
  if (content.is_string()) {
    out->text = content.get<std::string>();
    return std::nullopt;
  }
  if (!content.is_array()) return ApiError::bad(where, "must be a string or an array of blocks");
  for (size_t i = 0; i < content.size(); ++i)
    if (auto wrong = read_block(fmt::format("{}[{}]", where, i), content[i], out)) return wrong;
  return std::nullopt;
}

// Agents send roles that the API does not define, for messages that are not from the user.
Wrong read_messages(const Json& value, GenerationRequest& params) {
  if (value.empty()) return ApiError::bad("messages", "is empty");
  if (params.messages.is_null()) params.messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const Json& message = value[i];
    if (!message.is_object()) return ApiError::bad(where, "must be an object");
    if (!message.contains("role") || !message["role"].is_string())
      return ApiError::bad(where + ".role", "must be a string");
    const std::string given = message["role"].get<std::string>();
    if (given != "user" && given != "assistant" && given != "system" && given != "ctx" && given != "msg")
      return ApiError::bad(where + ".role", fmt::format("must be user or assistant; got '{}'", given.substr(0, 64)));
    if (!message.contains("content")) return ApiError::bad(where + ".content", "is missing");
    ReadBlocks blocks;
    Json content = message["content"];
    if (given == "system") drop_billing_line(content, params);
    if (auto wrong = read_blocks(where + ".content", content, &blocks)) return wrong;
    const std::string role = given == "assistant" || given == "system" ? given : "user";
    for (Json& result : blocks.results) params.messages.push_back(std::move(result));
    if (!blocks.results.empty() && blocks.text.empty()) continue;
    Json one = {{"role", role}, {"content", std::move(blocks.text)}};
    if (!blocks.thinking.empty()) one["reasoning_content"] = std::move(blocks.thinking);
    if (!blocks.calls.empty()) one["tool_calls"] = std::move(blocks.calls);
    params.messages.push_back(std::move(one));
  }
  if (auto wrong = check_tool_messages(params.messages, 0, "messages", "tool_use_id")) return wrong;
  const Json& last = params.messages.back();
  params.continue_last_message = last["role"] == "assistant" && !last.contains("tool_calls");
  params.add_generation_prompt = !params.continue_last_message;
  return std::nullopt;
}

Wrong read_tools(const Json& value, GenerationRequest& params) {
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const Json& tool = value[i];
    if (!tool.is_object()) return ApiError::bad(where, "must be an object");
    if (tool.contains("type") && !tool["type"].is_null() && tool["type"] != "custom")
      return ApiError::unsupported(where + ".type", "only client-defined tools are supported");
    const auto text = [&](const char* key) {
      return tool.contains(key) && tool[key].is_string() ? tool[key].get<std::string>() : std::string();
    };
    Json schema = tool.contains("input_schema") ? tool["input_schema"] : Json();
    if (auto wrong = add_tool(params, where, text("name"), text("description"), std::move(schema),
                              tool.contains("strict") && tool["strict"] == true))
      return wrong;
  }
  return std::nullopt;
}

Wrong read_choice(const Json& value, GenerationRequest& params) {
  using Choice = RequestedTools::Choice;
  const std::string type = value.contains("type") && value["type"].is_string() ? value["type"].get<std::string>() : "";
  params.tools.choice_given = type != "auto";
  if (type == "auto")
    params.tools.choice = Choice::automatic;
  else if (type == "none")
    params.tools.choice = Choice::none;
  else if (type == "any" || type == "tool")
    params.tools.choice = Choice::required;
  else
    return ApiError::bad("tool_choice.type", "must be auto, any, tool or none");
  if (type == "tool") {
    if (!value.contains("name") || !value["name"].is_string())
      return ApiError::bad("tool_choice.name", "must be a string");
    params.tools.named = value["name"].get<std::string>();
  }
  if (value.contains("disable_parallel_tool_use")) params.tools.parallel = value["disable_parallel_tool_use"] != true;
  return std::nullopt;
}

// {"type": "json_schema", "schema"}
Field format_field(const std::string& name, const std::string& where) {
  Field field{name, kJsonObject, "none",
              "{\"type\": \"json_schema\", \"schema\"}: a JSON Schema that the output text must match"};
  field.set = [where](const Json& value, GenerationRequest& params) -> Wrong {
    if (!value.contains("type") || value["type"] != "json_schema")
      return ApiError::bad(where + ".type", "must be json_schema");
    if (!value.contains("schema") || !value["schema"].is_object())
      return ApiError::bad(where + ".schema", "must be a JSON Schema");
    return set_response_format(params, value, where);
  };
  return field;
}

std::vector<Field> output_fields() {
  Field effort{"effort", kJsonText, "template default", "how much to think, for chat templates that support it"};
  effort.choices = {"low", "medium", "high", "xhigh", "max"};
  effort.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    set_reasoning_effort(params, value.get<std::string>());
    return std::nullopt;
  };
  Field older = format_field("output_format", "output_format");
  older.help = "older name of output_config.format";
  return {object_field(
              "output_config", "output format",
              {format_field("format", "output_config.format"), effort, unsupported_field("task_budget", is_empty)}),
          older};
}

std::vector<Field> thinking_members() {
  Field budget{"budget_tokens", kJsonInteger, "none", "maximum thinking tokens, if the chat template marks thinking"};
  budget.min = 0;
  budget.max = 2147483647;
  Field display{"display", kJsonText, "summarized",
                "summarized: thinking is returned as it is; omitted: its blocks are left out"};
  display.choices = {"summarized", "omitted"};
  display.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.reasoning.shown = value != "omitted";
    return std::nullopt;
  };
  return {budget, display};
}

std::vector<Field> tool_members() {
  const auto called_directly = [](const Json& value) { return value == Json::array({"direct"}); };
  return {
      Field{"strict", kJsonBoolean, "false", "the call's input matches the schema exactly, or the request is rejected"},
      ignored_field("cache_control", kJsonObject, "common prompt prefixes are shared automatically"),
      ignored_field("eager_input_streaming", kJsonBoolean, "a call's input is streamed as it is generated"),
      unsupported_field("input_examples", is_empty),
      unsupported_field("defer_loading", is_false),
      unsupported_field("allowed_callers", called_directly)};
}

std::vector<Field> prompt_fields() {
  Field system{"system", kJsonText | kJsonList, "none", "system prompt: a string or blocks of type text"};
  system.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    ReadBlocks blocks;
    Json text = value;
    drop_billing_line(text, params);
    if (auto wrong = read_blocks("system", text, &blocks)) return wrong;
    params.messages = Json::array();
    if (!blocks.text.empty()) params.messages.push_back({{"role", "system"}, {"content", std::move(blocks.text)}});
    return std::nullopt;
  };
  Field messages{
      "messages", kJsonList, "",
      "the conversation: objects with \"role\" (user, assistant) and \"content\", a string or blocks of type text, "
      "thinking, tool_use and tool_result; if the last message is the assistant's, the output continues it"};
  messages.required = true;
  messages.most = 1 << 16;
  messages.set = read_messages;
  Field tools{"tools", kJsonList, "none", "tools the model may call: {\"name\", \"description\", \"input_schema\"}"};
  tools.most = 256;
  tools.items = tool_members();
  tools.set = read_tools;
  Field choice{"tool_choice", kJsonObject, "{\"type\": \"auto\"}",
               "auto; any: the model must call some tool; tool: it must call the tool \"name\"; none. "
               "\"disable_parallel_tool_use\": at most one call"};
  choice.set = read_choice;
  Field thinking{"thinking", kJsonObject, "template default",
                 "{\"type\": \"enabled\", \"adaptive\" or \"disabled\"}, for chat templates that support it; thinking "
                 "is returned as blocks"};
  thinking.fields = thinking_members();
  thinking.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    const Json type = value.contains("type") ? value["type"] : Json();
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      return ApiError::bad("thinking.type", "must be enabled, adaptive or disabled");
    if (type != "adaptive") params.variables["enable_thinking"] = type == "enabled";
    if (type == "enabled" && value.contains("budget_tokens"))
      params.reasoning.budget = value["budget_tokens"].get<int64_t>();
    return std::nullopt;
  };
  return joined({{model_field(), system, messages, tools, choice, thinking}, output_fields()});
}

Wrong prepare_messages(const Json&, GenerationRequest& params) { return check_tools(params); }

std::vector<Field> message_fields() {
  Field most = max_tokens_field("max_tokens", "");
  most.required = true;
  most.min = 1;
  most.help = "maximum tokens to generate";
  Field priority;
  for (Field& field : extension_fields())
    if (field.name == "priority") priority = std::move(field);
  return joined({prompt_fields(),
                 {most, stream_field(false), stop_field("stop_sequences"), sampling_field("temperature", "temperature"),
                  sampling_field("top_p", "top_p"), sampling_field("top_k", "top_k")},
                 {priority},
                 other_message_fields()});
}

Handled count_tokens(Call& call) {
  if (auto wrong = call.service.make_prompts(call.params); wrong && wrong->kind != ApiErrorKind::too_long)
    return *wrong;
  return json_reply({{"input_tokens", call.params.prompts.front().tokens.size()}});
}

}  // namespace

const Dialect kAnthropic = {"Anthropic",
                            "Errors are `{\"type\": \"error\", \"error\": {\"type\", \"message\"}}`; an unsupported "
                            "feature is an `invalid_request_error`. Streams are named server-sent events that end with "
                            "`message_stop`; an error in a stream is sent as a final `event: error`.",
                            refuse, refuse_in_stream};

std::vector<Endpoint> anthropic_endpoints() {
  std::vector<Endpoint> list;
  list.push_back({.method = "POST",
                  .path = "/v1/messages",
                  .dialect = &kAnthropic,
                  .summary = "Generates the next message of a conversation.",
                  .fields = message_fields(),
                  .prepare = prepare_messages,
                  .format = &kMessages});
  list.push_back({.method = "POST",
                  .path = "/v1/messages/count_tokens",
                  .dialect = &kAnthropic,
                  .summary = "Counts the tokens of a conversation.",
                  .fields = joined({prompt_fields(), other_message_count_fields()}),
                  .prepare = prepare_messages,
                  .handle = count_tokens});
  const auto batches = message_batch_endpoints();
  list.insert(list.end(), batches.begin(), batches.end());
  return list;
}

}  // namespace millrace
