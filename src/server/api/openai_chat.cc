// POST /v1/chat/completions.
//
//   stream   role chunk, content chunks, a chunk with finish_reason and an empty delta, for each choice; then usage when
//            it was asked for, then [DONE]
#include <fmt/format.h>

#include "server/api/openai.h"
#include "server/api/sampling_fields.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Json logprob_json(const Answer& answer, const ChosenToken& chosen) {
  const auto one = [&](TokenId token, float logprob) {
    const std::string bytes = token_bytes(*answer.model, token);
    Json list = Json::array();
    for (char c : bytes) list.push_back(static_cast<uint8_t>(c));
    return Json{{"token", token_text(*answer.model, token)}, {"logprob", std::max(logprob, -9999.0f)}, {"bytes", std::move(list)}};
  };
  Json out = one(chosen.token, chosen.logprob);
  out["top_logprobs"] = Json::array();
  for (const TokenLogprob& top : chosen.top) out["top_logprobs"].push_back(one(top.token, top.logprob));
  return out;
}

Json chunk(const Answer& answer, Json choices) {
  Json out = openai_envelope(answer, "chat.completion.chunk", std::move(choices));
  if (answer.ask.include_usage) out["usage"] = nullptr;
  return out;
}

std::string choice_chunk(const Answer& answer, size_t index, Json delta, Json logprobs, Json finish) {
  Json choice = {{"index", index}, {"delta", std::move(delta)}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}};
  return sse_data(chunk(answer, Json::array({std::move(choice)})));
}

std::string begin(Answer&) { return ""; }

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  std::string out;
  if (!choice.begun) {
    choice.begun = true;
    out += choice_chunk(answer, index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  if (!delta.text.empty() || delta.logprob) {
    Json logprobs;
    if (delta.logprob) logprobs = {{"content", Json::array({logprob_json(answer, *delta.logprob)})}, {"refusal", nullptr}};
    out += choice_chunk(answer, index, {{"content", delta.text}}, std::move(logprobs), nullptr);
  }
  if (delta.finish != FinishReason::none) out += choice_chunk(answer, index, Json::object(), nullptr, openai_finish(choice));
  return out;
}

std::string end(Answer& answer) {
  std::string out;
  if (answer.ask.include_usage) {
    Json last = chunk(answer, Json::array());
    last["usage"] = openai_usage(answer);
    out = sse_data(last);
  }
  return out + "data: [DONE]\n\n";
}

Json whole(Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& choice = answer.choices[i];
    Json logprobs;
    if (answer.ask.request.sampling.logprobs >= 0) {
      Json content = Json::array();
      for (const ChosenToken& chosen : choice.logprobs) content.push_back(logprob_json(answer, chosen));
      logprobs = {{"content", std::move(content)}, {"refusal", nullptr}};
    }
    choices.push_back({{"index", i},
                       {"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}},
                       {"logprobs", std::move(logprobs)},
                       {"finish_reason", openai_finish(choice)}});
  }
  Json out = openai_envelope(answer, "chat.completion", std::move(choices));
  out["usage"] = openai_usage(answer);
  return out;
}

Wrong read_content(const std::string& where, const Json& content, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return std::nullopt;
  }
  if (content.is_null()) return std::nullopt;
  if (!content.is_array()) return ApiError::bad(where, "must be a string or an array of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string name = fmt::format("{}[{}]", where, i);
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return ApiError::bad(name, "must be an object with a \"type\"");
    const auto& type = part["type"].get_ref<const std::string&>();
    if (type != "text" && type != "input_text" && type != "output_text") return ApiError::unsupported(name, fmt::format("parts of type '{}' are not supported", type));
    if (!part.contains("text") || !part["text"].is_string()) return ApiError::bad(name + ".text", "must be a string");
    *text += part["text"].get_ref<const std::string&>();
  }
  return std::nullopt;
}

}  // namespace

const AnswerFormat kChatCompletions = {"chatcmpl-", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

Wrong read_messages(const Json& value, Ask& ask) {
  if (value.empty()) return ApiError::bad("messages", "is empty");
  ask.messages = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const Json& message = value[i];
    if (!message.is_object()) return ApiError::bad(where, "must be an object");
    if (!message.contains("role") || !message["role"].is_string()) return ApiError::bad(where + ".role", "must be a string");
    std::string text;
    if (message.contains("content"))
      if (auto wrong = read_content(where + ".content", message["content"], &text)) return wrong;
    Json read = message;
    if (read["role"] == "developer") read["role"] = "system";
    read["content"] = std::move(text);
    ask.messages.push_back(std::move(read));
  }
  return std::nullopt;
}

Field messages_field() {
  Field field{"messages", kList, "", "the conversation: objects with \"role\" (system, developer, user, assistant, tool) and \"content\", a string or parts of type text"};
  field.required = true;
  field.most = 1 << 16;
  field.set = read_messages;
  return field;
}

std::vector<Field> chat_prompt_fields() {
  Field generation{"add_generation_prompt", kBoolean, "true", "the prompt ends where the assistant begins to speak"};
  generation.set = [](const Json& value, Ask& ask) -> Wrong {
    ask.add_generation_prompt = value.get<bool>();
    return std::nullopt;
  };
  Field variables{"chat_template_kwargs", kObject, "{}", "further variables of the chat template"};
  variables.most = 256;
  variables.set = [](const Json& value, Ask& ask) -> Wrong {
    ask.variables = value;
    return std::nullopt;
  };
  return {messages_field(), generation, variables};
}

std::vector<Field> chat_completion_fields() {
  Field logprobs{"logprobs", kBoolean, "false", "log-probabilities of the tokens, of the model's distribution before any sampling option"};
  Field top{"top_logprobs", kInteger, "0", "so many of the likeliest tokens beside each; needs logprobs"};
  top.min = 0;
  top.max = 20;
  Field go_on{"continue_final_message", kBoolean, "false", "the answer goes on where the last message ends; excludes add_generation_prompt"};
  go_on.set = [](const Json& value, Ask& ask) -> Wrong {
    ask.continue_last_message = value.get<bool>();
    return std::nullopt;
  };
  const auto is_text_alone = [](const Json& value) { return value == Json::array({"text"}); };
  return joined({{model_field()},
                 chat_prompt_fields(),
                 {go_on, max_tokens_field("max_tokens", "-1"), max_tokens_field("max_completion_tokens", "-1"), stream_field(false), usage_in_stream_field(),
                  answers_field(), stop_field("stop"), seed_field(false), logit_bias_field(), logprobs, top, Field{"user", kText, "", "of no effect"}},
                 sampling_fields(),
                 extension_fields(),
                 {unsupported_field("tools", is_empty), unsupported_field("functions", is_empty), unsupported_field("tool_choice", is_no_choice),
                  unsupported_field("function_call", is_no_choice), unsupported_field("response_format", is_no_format),
                  unsupported_field("structured_outputs", is_empty), unsupported_field("guided_json", is_empty), unsupported_field("guided_regex", is_empty),
                  unsupported_field("grammar", is_empty), unsupported_field("json_schema", is_empty), unsupported_field("modalities", is_text_alone),
                  unsupported_field("audio", is_empty), unsupported_field("use_beam_search", is_false), unsupported_field("prompt_logprobs", is_false),
                  unsupported_field("lora", is_empty)},
                 unsupported_extensions()});
}

Wrong prepare_chat_completion(const Json& body, Ask& ask) {
  if (body.contains("stream_options") && !ask.stream) return ApiError::bad("stream_options", "needs stream");
  if (!body.contains("max_tokens") && !body.contains("max_completion_tokens")) ask.request.max_tokens = -1;
  const bool logprobs = body.value("logprobs", false);
  if (body.contains("top_logprobs") && !logprobs && body["top_logprobs"].get<int64_t>() > 0) return ApiError::bad("top_logprobs", "needs logprobs");
  ask.request.sampling.logprobs = logprobs ? body.value("top_logprobs", int64_t{0}) : -1;
  if (ask.continue_last_message) {
    if (body.value("add_generation_prompt", false)) return ApiError::bad("continue_final_message", "excludes add_generation_prompt");
    ask.add_generation_prompt = false;
  }
  return std::nullopt;
}

}  // namespace millrace
