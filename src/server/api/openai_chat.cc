// POST /v1/chat/completions.
//
//   stream   for each choice: role chunk, chunks of content, reasoning and tool calls, a chunk with finish_reason and
//            an empty delta; then usage if requested, then [DONE]
#include <fmt/format.h>

#include "server/api/custom_tools.h"
#include "server/api/known_fields.h"
#include "server/api/message_rules.h"
#include "server/api/old_functions.h"
#include "server/api/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/search_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/tool_fields.h"
#include "server/api/vllm_fields.h"
#include "server/models/adapters.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Json chunk(const Answer& answer, Json choices) {
  Json out = openai_envelope(answer, "chat.completion.chunk", std::move(choices));
  if (answer.params.include_usage) out["usage"] = answer.params.continuous_usage ? openai_usage(answer) : Json();
  return out;
}

// The chunks of one event: one for each piece, the first with the token's log-probability and id.
class ChoiceChunks {
 public:
  ChoiceChunks(Answer& answer, size_t index, const Delta& delta) : answer_(answer), index_(index) {
    if (delta.logprob) logprobs_ = {{"content", openai_logprobs(answer, {delta.logprob, 1})}, {"refusal", nullptr}};
    if (answer.params.return_tokens && delta.token >= 0) tokens_ = Json::array({delta.token});
  }
  void add(Json delta, Json finish = nullptr) {
    Json choice = {{"index", index_},
                   {"delta", std::move(delta)},
                   {"logprobs", std::move(logprobs_)},
                   {"finish_reason", std::move(finish)}};
    if (!tokens_.is_null()) choice["token_ids"] = std::move(tokens_);
    logprobs_ = tokens_ = nullptr;
    if (const Json reason = openai_stop_reason(answer_.choices[index_]);
        !choice["finish_reason"].is_null() && !reason.is_null())
      choice["stop_reason"] = reason;
    const bool ended = !choice["finish_reason"].is_null();
    Json out = chunk(answer_, Json::array({std::move(choice)}));
    if (ended) out["timings"] = timings_json(answer_), add_own_facts(answer_, out);
    out_ += sse_data(out, answer_.late);
  }
  // Fast path of add({{name, text}}), which nearly all chunks are.
  void add_text(const char* name, const std::string& text) {
    if (waiting() || (answer_.params.include_usage && answer_.params.continuous_usage)) return add({{name, text}});
    out_ += openai_chunk_head(answer_, "chat.completion.chunk");
    out_.append("{\"index\":").append(std::to_string(index_)).append(",\"delta\":{\"").append(name).append("\":");
    append_json_text(out_, text);
    out_.append("},\"logprobs\":null,\"finish_reason\":null}").append(openai_chunk_tail(answer_));
  }
  void begin() {
    Json choice = {{"index", index_},
                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                   {"logprobs", nullptr},
                   {"finish_reason", nullptr}};
    Json first = chunk(answer_, Json::array({std::move(choice)}));
    if (answer_.params.return_tokens) first["prompt_token_ids"] = answer_.prompt_of(index_).tokens;
    out_ += sse_data(first);
  }
  bool waiting() const { return !logprobs_.is_null() || !tokens_.is_null(); }
  std::string take() { return std::move(out_); }

 private:
  Answer& answer_;
  size_t index_;
  Json logprobs_, tokens_;
  std::string out_;
};

// The input of a custom tool is only known once its call has ended.
void end_custom(Choice& choice, ChoiceChunks& chunks) {
  if (!choice.open_custom) return;
  choice.open_custom = false;
  const size_t at = choice.streamed_calls - 1;
  Json call = {{"index", at}, {"custom", {{"input", custom_input(choice.calls[at].arguments)}}}};
  chunks.add({{"tool_calls", Json::array({std::move(call)})}});
}

void add_piece_chunk(const Answer& answer, Choice& choice, const AnswerPiece& piece, ChoiceChunks& chunks) {
  using Kind = AnswerPiece::Kind;
  switch (piece.kind) {
    case Kind::text: return chunks.add_text("content", piece.text);
    case Kind::reasoning:
      if (answer.params.reasoning.shown)
        chunks.add_text(answer.params.reasoning.in_vllm_name ? "reasoning" : "reasoning_content", piece.text);
      return;
    case Kind::call: {
      const size_t at = choice.streamed_calls++;
      if (answer.params.tools.old_form)
        return chunks.add({{"function_call", {{"name", piece.text}, {"arguments", ""}}}});
      const bool custom = is_custom(answer.params, piece.text);
      Json call = {{"index", at}, {"id", choice.calls[at].id}, {"type", custom ? "custom" : "function"}};
      call[custom ? "custom" : "function"] = {{"name", piece.text}, {custom ? "input" : "arguments", ""}};
      choice.open_custom = custom;
      return chunks.add({{"tool_calls", Json::array({std::move(call)})}});
    }
    case Kind::arguments: {
      if (choice.streamed_calls == 0 || choice.open_custom) return;
      if (answer.params.tools.old_form) return chunks.add({{"function_call", {{"arguments", piece.text}}}});
      Json call = {{"index", choice.streamed_calls - 1}, {"function", {{"arguments", piece.text}}}};
      return chunks.add({{"tool_calls", Json::array({std::move(call)})}});
    }
    case Kind::call_end: return end_custom(choice, chunks);
  }
}

std::string begin(Answer&) { return ""; }

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  ChoiceChunks chunks(answer, index, delta);
  if (!choice.begun) {
    choice.begun = true;
    chunks.begin();
  }
  if (delta.pieces.empty() && !delta.text.empty()) chunks.add_text("content", delta.text);
  for (const AnswerPiece& piece : delta.pieces) add_piece_chunk(answer, choice, piece, chunks);
  if (delta.finish != FinishReason::none) end_custom(choice, chunks);  // cut off
  if (chunks.waiting()) chunks.add({{"content", ""}});
  if (delta.finish != FinishReason::none) chunks.add(Json::object(), openai_finish(answer, choice));
  return chunks.take();
}

std::string end(Answer& answer) {
  std::string out;
  if (answer.params.include_usage) {
    Json last = chunk(answer, Json::array());
    last["usage"] = openai_usage(answer);
    out = sse_data(last);
  }
  return out + "data: [DONE]\n\n";
}

Json message_json(const Answer& answer, const Choice& choice) {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty() && answer.params.reasoning.shown)
    message[answer.params.reasoning.in_vllm_name ? "reasoning" : "reasoning_content"] = choice.reasoning;
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  if (answer.params.tools.old_form) {
    message["function_call"] = {{"name", choice.calls[0].name}, {"arguments", choice.calls[0].arguments}};
    return message;
  }
  message["tool_calls"] = Json::array();
  for (const ToolCall& call : choice.calls) {
    if (is_custom(answer.params, call.name))
      message["tool_calls"].push_back({{"id", call.id},
                                       {"type", "custom"},
                                       {"custom", {{"name", call.name}, {"input", custom_input(call.arguments)}}}});
    else
      message["tool_calls"].push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

Json whole(Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& choice = answer.choices[i];
    Json logprobs;
    if (answer.params.request.sampling.logprobs >= 0)
      logprobs = {{"content", openai_logprobs(answer, choice.logprobs)}, {"refusal", nullptr}};
    Json one = {{"index", i},
                {"message", message_json(answer, choice)},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", openai_finish(answer, choice)}};
    if (Json reason = openai_stop_reason(choice); !reason.is_null()) one["stop_reason"] = std::move(reason);
    if (answer.params.return_tokens) one["token_ids"] = choice.tokens;
    choices.push_back(std::move(one));
  }
  Json out = openai_envelope(answer, "chat.completion", std::move(choices));
  out["usage"] = openai_usage(answer);
  out["timings"] = timings_json(answer);
  if (answer.params.return_tokens) out["prompt_token_ids"] = answer.params.prompts.front().tokens;
  if (!answer.prompt_logprobs.empty()) out["prompt_logprobs"] = openai_prompt_logprobs(answer, 0);
  return out;
}

}  // namespace

const AnswerFormat kChatCompletions = {"chatcmpl-", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

Field messages_field() {
  Field field{"messages", kJsonList, "",
              "the conversation: objects with \"role\" (system, developer, user, assistant, tool) and \"content\", a "
              "string or parts of type text"};
  field.required = true;
  field.most = 1 << 16;
  field.set = read_messages;
  return field;
}

std::vector<Field> chat_prompt_fields() {
  Field generation{"add_generation_prompt", kJsonBoolean, "true", "end the prompt where the assistant's turn begins"};
  generation.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.add_generation_prompt = value.get<bool>();
    return std::nullopt;
  };
  Field variables{"chat_template_kwargs", kJsonObject, "{}", "additional variables for the chat template"};
  variables.most = 256;
  variables.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    for (const auto& [name, variable] : value.items()) params.variables[name] = variable;
    return std::nullopt;
  };
  return {messages_field(), generation, variables};
}

std::vector<Field> chat_completion_fields() {
  Field logprobs{"logprobs", kJsonBoolean, "false",
                 "return log-probabilities of the tokens, from the model's distribution before any sampling option"};
  Field top{"top_logprobs", kJsonInteger, "0",
            "number of most likely tokens to return at each position; needs logprobs"};
  top.min = 0;
  top.max = 20;
  Field continue_final{"continue_final_message", kJsonBoolean, "false",
                       "continue the last message; cannot be combined with add_generation_prompt"};
  continue_final.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.continue_last_message = value.get<bool>();
    return std::nullopt;
  };
  return joined({{model_field()},
                 chat_prompt_fields(),
                 {continue_final, max_tokens_field("max_tokens", "-1"), max_tokens_field("max_completion_tokens", "-1"),
                  max_tokens_field("n_predict", "-1"), stream_field(false), usage_in_stream_field(), answers_field(),
                  stop_field("stop"), seed_field(false), logit_bias_field(), logprobs, top},
                 sampling_fields(),
                 llama_sampling_fields(),
                 search_fields(),
                 extension_fields(),
                 tool_fields(),
                 reasoning_fields(),
                 {response_format_field()},
                 guided_fields(),
                 grammar_fields(),
                 vllm_fields(),
                 old_function_fields(),
                 {lora_field()},
                 other_chat_fields()});
}

Wrong prepare_chat_completion(const Json& body, GenerationRequest& params) {
  if (params.include_usage && !params.stream) return ApiError::bad("stream_options", "needs stream");
  if (!body.contains("max_tokens") && !body.contains("max_completion_tokens") && !body.contains("n_predict"))
    params.request.max_tokens = -1;
  const bool logprobs = body.value("logprobs", false);
  if (body.contains("top_logprobs") && !logprobs && body["top_logprobs"].get<int64_t>() > 0)
    return ApiError::bad("top_logprobs", "needs logprobs");
  params.request.sampling.logprobs = logprobs ? body.value("top_logprobs", int64_t{0}) : -1;
  if (params.continue_last_message) {
    if (body.value("add_generation_prompt", false))
      return ApiError::bad("continue_final_message", "cannot be combined with add_generation_prompt");
    params.add_generation_prompt = false;
  }
  if (params.prompt_logprobs >= 0 && params.stream)
    return ApiError::bad("prompt_logprobs", "cannot be combined with stream");
  if (auto wrong = check_tool_messages(params.messages, 0, "messages", "tool_call_id")) return wrong;
  if (auto wrong = prepare_search(body, params)) return wrong;
  return check_tools(params);
}

}  // namespace millrace
