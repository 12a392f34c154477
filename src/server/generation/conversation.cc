#include "server/generation/conversation.h"

#include <fmt/format.h>

#include <algorithm>

#include "prompt/chat_prompt.h"
#include "prompt/message_sources.h"
#include "run/language_model.h"
#include "server/generation/text_work.h"
#include "server/models/served_model.h"
#include "text/grammar/schema.h"
#include "text/tools/tool_dialect.h"

namespace millrace {
namespace {

using RequestedChoice = RequestedTools::Choice;

// Templates expect a call's arguments as an object; clients send them as text.
void read_arguments(Json& messages) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
    for (Json& call : message["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
          !call["function"].contains("arguments"))
        continue;
      Json& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) continue;
      Json parsed = arguments.get_ref<const std::string&>().empty()
                        ? Json::object()
                        : parse_json(arguments.get_ref<const std::string&>());
      if (parsed.is_object()) arguments = std::move(parsed);
    }
  }
}

bool has_calls(const Json& messages) {
  for (const Json& message : messages)
    if (message.contains("tool_calls") || (message.contains("role") && message["role"] == "tool")) return true;
  return false;
}

void add_to_system(Json& messages, const std::string& text) {
  if (!messages.empty() && messages[0]["role"] == "system") {
    messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
    return;
  }
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
}

// Passes the tools to the template if it supports them, otherwise describes them in the messages.
void add_tools(const std::string& chat_template, bool by_template, GenerationRequest& params, Json& input) {
  const ToolDialect& dialect = tool_dialect_of(chat_template);
  const bool named = chat_template.find("tools") != std::string::npos,
             known = by_template && dialect.speaks(chat_template) && (named || dialect.description);
  if (params.tools.any()) params.dialect = known ? &dialect : &described_tools();
  if (known && dialect.frames && !params.continue_last_message) params.dialect = &dialect;
  if (known && named && params.tools.any()) input["tools"] = params.tools.definitions;
  Json& messages = input["messages"];  // a reference: do not add to `input` below
  if (known) read_arguments(messages);
  if (known && dialect.call_writer && chat_template.find("tool_calls") == std::string::npos)
    write_calls(dialect.call_writer, messages);
  if (known && !named && params.tools.any()) add_to_system(messages, dialect.description(params.tools.tools));
  if (known) return;
  if (has_calls(messages)) messages = describe_calls(messages);
  if (params.tools.any())
    add_to_system(messages, describe_tools(params.tools.tools,
                                           {params.tools.choice == RequestedChoice::required, params.tools.parallel}));
}

Json structure_of(const Constraint& constraint) {
  switch (constraint.kind) {
    case Constraint::Kind::json_object: return {{"type", "json_schema"}, {"json_schema", {{"type", "object"}}}};
    case Constraint::Kind::json_schema: return {{"type", "json_schema"}, {"json_schema", parse_json(constraint.text)}};
    case Constraint::Kind::regex: return {{"type", "regex"}, {"pattern", constraint.text}};
    case Constraint::Kind::grammar: return {{"type", "grammar"}, {"grammar", constraint.text}};
    case Constraint::Kind::structure: return parse_json(constraint.text);
    case Constraint::Kind::choice: {
      Json ways = Json::array();
      for (const std::string& choice : constraint.choices)
        ways.push_back({{"type", "const_string"}, {"value", choice}});
      return {{"type", "or"}, {"elements", std::move(ways)}};
    }
    case Constraint::Kind::none: break;
  }
  return {{"type", "any_text"}};
}

// The tools that the answer may call. The prompt lists all tools, so that cached prefixes stay valid.
std::vector<Tool> callable_tools(const RequestedTools& tools) {
  std::vector<Tool> out = tools.tools;
  if (tools.allowed)
    std::erase_if(
        out, [&](const Tool& tool) { return std::ranges::find(*tools.allowed, tool.name) == tools.allowed->end(); });
  return out;
}

void set_structure(GenerationRequest& params, const Json& structure) {
  params.request.constraint = {};
  params.request.constraint.kind = Constraint::Kind::structure;
  params.request.constraint.text = to_text(structure);
}

// The callable tools with the schemas for the constraint. Strict tools are marked there, where the model cannot see it.
std::vector<Tool> constrained_tools(const RequestedTools& requested) {
  std::vector<Tool> tools = callable_tools(requested);
  for (const Json& definition : requested.definitions.is_array() ? requested.definitions : Json::array()) {
    const Json& function = definition["function"];
    if (!function.contains("strict") || function["strict"] != true) continue;
    for (Tool& tool : tools)
      if (function["name"] == tool.name) tool.parameters[kStrictSchema] = "tool '" + tool.name + "'";
  }
  return tools;
}

// combine_constraints() for dialects in which every answer has frames.
void constrain_frames(GenerationRequest& params) {
  const bool tools = params.tools.any(), required = tools && params.tools.choice == RequestedChoice::required;
  if (!tools && params.request.constraint.kind == Constraint::Kind::none) return;
  if (tools && params.constraint_field.empty()) params.constraint_field = "tools";
  const std::vector<Tool> callable = tools ? constrained_tools(params.tools) : std::vector<Tool>();
  set_structure(params, params.dialect->frames(callable, {required, params.tools.parallel},
                                               required ? Json() : structure_of(params.request.constraint)));
}

// Combines the constraints of the text, the calls and the thinking before them.
void combine_constraints(GenerationRequest& params) {
  if (params.dialect && params.dialect->frames) return constrain_frames(params);
  Constraint& constraint = params.request.constraint;
  const bool thinks = params.marks && params.place != ReasoningPlace::behind && !params.constrains_thinking;
  if (!params.dialect && (constraint.kind == Constraint::Kind::none || !thinks)) return;
  Json structure;
  EarlyCalls calls;
  const std::vector<Tool> tools = params.dialect ? constrained_tools(params.tools) : std::vector<Tool>();
  if (params.dialect) {
    const bool required = params.tools.choice == RequestedChoice::required;
    const bool both = constraint.kind != Constraint::Kind::none && !required;
    const ToolChoice wish = {required || both, params.tools.parallel};
    structure = params.dialect->structure(tools, wish);
    calls = {params.dialect, tools, wish};
    if (both) structure = {{"type", "or"}, {"elements", {structure_of(constraint), std::move(structure)}}};
    if (params.constraint_field.empty()) params.constraint_field = "tools";
  } else {
    structure = structure_of(constraint);
  }
  if (thinks) structure = behind_reasoning(std::move(structure), *params.marks, params.place, calls);
  set_structure(params, structure);
}

// Prepends the tokens of the conversation so far, and drops the start token of the new message.
std::optional<ApiError> prepend_context(const LanguageModel& model, const std::vector<TokenId>& context,
                                        std::vector<TokenId>& tokens) {
  if (context.empty()) return std::nullopt;
  for (TokenId token : context)
    if (token < 0 || token >= model.info().vocab)
      return ApiError::bad("context",
                           fmt::format("token {} is outside the vocabulary of {}", token, model.info().vocab));
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  if (tokenizer && tokenizer->spec().bos && !tokens.empty() && tokens.front() == *tokenizer->spec().bos)
    tokens.erase(tokens.begin());
  tokens.insert(tokens.begin(), context.begin(), context.end());
  return std::nullopt;
}

// The prompt that the answer continues; with continue_last_message it ends where the last message ends.
Result<RenderedChat> render_prompt(const LanguageModel& model, const GenerationRequest& params, const Json& input) {
  return params.continue_last_message ? render_unfinished_chat(model, input)
                                      : render_chat(model, input, params.add_generation_prompt);
}

// Messages that the template refuses are rewritten; the answer says how.
void report_rewrites(GenerationRequest& params, const RenderedChat& rendered) {
  for (const MessageRewrite* rewrite : rendered.rewrites)
    params.applied.push_back(
        {{"family", "messages"}, {"name", rewrite->name}, {"options", Json::object()}, {"effect", rewrite->effect}});
}

}  // namespace

std::optional<ApiError> charge_text(const GenerationRequest& params, size_t bytes) {
  if (!params.text_work || !params.served) return std::nullopt;
  return params.text_work->charge(params.served->text_memory, static_cast<int64_t>(bytes));
}

std::optional<ApiError> make_conversation(const LanguageModel& model, GenerationRequest& params) {
  const std::string& chat_template = model.parts().files->chat_template;
  Json input = params.variables.is_object() ? std::move(params.variables) : Json::object();
  params.variables = Json::object();
  const std::string system = params.served ? params.served->system : "";
  if (!system.empty() && (params.messages.empty() || params.messages[0].value("role", std::string()) != "system"))
    add_to_system(params.messages, system);
  input["messages"] = std::move(params.messages);
  params.messages = Json::array();
  Json as_given = params.tools.any() ? input : Json();
  add_tools(chat_template, true, params, input);
  complete_calls(input["messages"]);
  auto rendered = render_prompt(model, params, input);
  // Some templates only render in engines other than Python's: R1's passes a filter's result to tojson.
  if (!rendered.ok() && as_given.is_object() &&
      rendered.error().message.find("is not JSON serializable") != std::string::npos) {
    input = std::move(as_given);
    add_tools(chat_template, false, params, input);
    rendered = render_prompt(model, params, input);
  }
  if (!rendered.ok()) return ApiError{ApiErrorKind::bad_request, "messages: " + rendered.error().message, "messages"};
  report_rewrites(params, *rendered);
  input["messages"] = std::move(rendered->messages);
  std::string* const text = &rendered->text;
  params.marks = params.dialect && params.dialect->frames ? nullptr : reasoning_marks_of(chat_template);
  if (params.marks) {
    params.place = reasoning_place(*text, *params.marks);
    if (params.continue_last_message) {
      const Json& last = input["messages"].back();
      const std::string content =
          last.contains("content") && last["content"].is_string() ? last["content"].get<std::string>() : "";
      const size_t open = content.rfind(params.marks->open), close = content.rfind(params.marks->close);
      params.place = open != std::string::npos && (close == std::string::npos || close < open) ? ReasoningPlace::inside
                                                                                               : ReasoningPlace::behind;
    }
  }
  if (params.marks && params.place != ReasoningPlace::behind)
    params.request.thinking = {params.reasoning.budget, params.marks->open, params.marks->close,
                               params.place == ReasoningPlace::inside, std::string(params.call_start())};
  params.request.show_markers = params.marks || params.dialect;
  combine_constraints(params);
  if (auto wrong = charge_text(params, text->size())) return wrong;
  auto tokens = encode_chat(model, *text);
  if (!tokens.ok()) return ApiError::from(tokens.error());
  std::vector<PromptSource> sources;
  if (!params.prompt_passes.empty()) {
    if (!params.continue_last_message)
      sources = message_sources(model, input, params.add_generation_prompt, *text, *tokens);
    sources.resize(tokens->size(), PromptSource::fixed);
  }
  if (auto wrong = prepend_context(model, params.context_tokens, *tokens)) return wrong;
  if (!sources.empty() && !params.context_tokens.empty()) {  // it comes first, and may replace a start token
    const auto own = static_cast<ptrdiff_t>(tokens->size() - params.context_tokens.size());
    sources.erase(sources.begin(), sources.end() - own);
    sources.insert(sources.begin(), params.context_tokens.size(), PromptSource::fixed);
  }
  params.prompts.assign(1, {.text = std::move(*text), .tokens = std::move(*tokens), .sources = std::move(sources)});
  return std::nullopt;
}

std::optional<ApiError> make_bad_words(const LanguageModel& model, GenerationRequest& params) {
  // Encode after a newline, because tokenizers may add a space before the first word of a text.
  if (params.bad_words.empty()) return std::nullopt;
  const auto encode = [&](const std::string& text) {
    return model.encode(text, /*add_special=*/false, /*parse_special=*/false);
  };
  auto before = encode("\n");
  if (!before.ok()) return ApiError::bad("bad_words", before.error().message);
  for (const std::string& word : params.bad_words) {
    for (const bool spaced : {false, true}) {
      auto tokens = encode((spaced ? "\n " : "\n") + word);
      if (!tokens.ok()) return ApiError::bad("bad_words", tokens.error().message);
      if (tokens->size() <= before->size() || !std::equal(before->begin(), before->end(), tokens->begin())) continue;
      params.request.bad_words.emplace_back(tokens->begin() + static_cast<ptrdiff_t>(before->size()), tokens->end());
    }
  }
  return std::nullopt;
}

std::optional<ApiError> make_prediction(const LanguageModel& model, GenerationRequest& params) {
  if (params.prediction.empty()) return std::nullopt;
  auto tokens = model.encode(params.prediction, /*add_special=*/false, /*parse_special=*/false);
  if (!tokens.ok()) return ApiError::bad("prediction", tokens.error().message);
  params.request.prediction = std::move(*tokens);
  return std::nullopt;
}

void truncate_prompt(GenerationRequest& params, AskedPrompt& prompt, int64_t context) {
  if (params.truncate_prompt == 0) return;
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  const int64_t room = context - std::max<int64_t>(1, params.request.max_tokens);
  const int64_t most = params.truncate_prompt > 0 ? params.truncate_prompt : std::max<int64_t>(1, room);
  if (count <= most) return;
  params.truncated_tokens += count - most;
  prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - most);
}

ApiError constraint_error(const GenerationRequest& params, const ApiError& error) {
  if (error.field != "constraint" || params.constraint_field.empty() || error.kind == ApiErrorKind::internal ||
      error.kind == ApiErrorKind::overloaded)
    return error;
  constexpr std::string_view kPrefix = "constraint: ";
  std::string reason = error.message;
  if (reason.starts_with(kPrefix)) reason.erase(0, kPrefix.size());
  return ApiError::bad(params.constraint_field, reason);
}

}  // namespace millrace
