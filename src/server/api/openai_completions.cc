// POST /v1/completions: the older API. Evaluation harnesses use it to score prompts (echo, logprobs, max_tokens 0).
#include <fmt/format.h>

#include "server/api/known_fields.h"
#include "server/api/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/search_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/vllm_fields.h"
#include "server/generation/infill.h"
#include "server/generation/prompt_rows.h"
#include "server/models/adapters.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// The four lists of the old logprobs format. A prompt's first token has no log-probability.
struct OldLogprobs {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();

  void add(const Answer& answer, const ChosenToken& chosen, bool first_of_all, int64_t& offset) {
    const std::string text = token_text(*answer.model, chosen.token);
    tokens.push_back(text);
    offsets.push_back(offset);
    offset += static_cast<int64_t>(token_bytes(*answer.model, chosen.token).size());
    logprobs.push_back(first_of_all ? Json() : Json(std::max(chosen.logprob, -9999.0f)));
    Json best = first_of_all ? Json() : Json::object();
    if (!first_of_all) {
      for (const TokenLogprob& one : chosen.top)
        best[token_text(*answer.model, one.token)] = std::max(one.logprob, -9999.0f);
    }
    top.push_back(std::move(best));
  }
  Json json() {
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(top)},
            {"text_offset", std::move(offsets)}};
  }
};

Json echoed_logprobs(const Answer& answer, size_t choice, int64_t& offset, OldLogprobs& out) {
  if (answer.prompt_logprobs.empty() || !answer.params.echo) return {};
  const auto& prompt = answer.prompt_logprobs[choice / static_cast<size_t>(answer.params.request.n)];
  for (size_t i = 0; i < prompt.size(); ++i) out.add(answer, prompt[i], i == 0, offset);
  return {};
}

// Fast path of chunk() for text only, which nearly all chunks are.
std::string text_chunk(Answer& answer, size_t index, const std::string& text, const char* finish) {
  std::string out = openai_chunk_head(answer, "text_completion");
  out.append("{\"index\":").append(std::to_string(index)).append(",\"text\":");
  append_json_text(out, text);
  out += ",\"logprobs\":null,\"finish_reason\":";
  if (finish)
    append_json_text(out, finish);
  else
    out += "null";
  return out.append("}").append(openai_chunk_tail(answer));
}

std::string chunk(const Answer& answer, size_t index, const std::string& text, Json logprobs, Json finish) {
  const bool ended = !finish.is_null();
  Json choice = {
      {"index", index}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}};
  Json out = openai_envelope(answer, "text_completion", Json::array({std::move(choice)}));
  if (answer.params.include_usage) out["usage"] = answer.params.continuous_usage ? openai_usage(answer) : Json();
  if (ended) add_own_facts(answer, out);
  return sse_data(out);
}

std::string begin(Answer&) { return ""; }

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  const bool wants_logprobs = answer.params.request.sampling.logprobs >= 0;
  std::string text = delta.text;
  OldLogprobs logprobs;
  bool some = delta.logprob != nullptr;
  if (!choice.begun && answer.params.echo) {
    text = answer.prompt_of(index).text + text;
    echoed_logprobs(answer, index, choice.text_bytes, logprobs);
    some = wants_logprobs;
  }
  choice.begun = true;
  if (delta.logprob) logprobs.add(answer, *delta.logprob, false, choice.text_bytes);
  const bool ended = delta.finish != FinishReason::none;
  if (text.empty() && !some && !ended) return "";
  const bool plain = !some && !(ended && !own_facts(answer).empty());
  if (plain && !(answer.params.include_usage && answer.params.continuous_usage))
    return text_chunk(answer, index, text, ended ? openai_finish(answer, choice) : nullptr);
  return chunk(answer, index, text, some ? logprobs.json() : Json(),
               ended ? Json(openai_finish(answer, choice)) : Json());
}

std::string end(Answer& answer) {
  std::string out;
  if (answer.params.include_usage) {
    Json last = openai_envelope(answer, "text_completion", Json::array());
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
    if (answer.params.request.sampling.logprobs >= 0) {
      OldLogprobs lists;
      int64_t offset = 0;
      if (answer.params.echo) echoed_logprobs(answer, i, offset, lists);
      for (const ChosenToken& chosen : choice.logprobs) lists.add(answer, chosen, false, offset);
      logprobs = lists.json();
    }
    Json one = {{"index", i},
                {"text", answer.params.echo ? answer.prompt_of(i).text + choice.text : choice.text},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", openai_finish(answer, choice)}};
    if (Json reason = openai_stop_reason(choice); !reason.is_null()) one["stop_reason"] = std::move(reason);
    if (!answer.prompt_logprobs.empty() && answer.params.prompt_logprobs >= 0)
      one["prompt_logprobs"] = openai_prompt_logprobs(answer, i / static_cast<size_t>(answer.params.request.n));
    if (answer.params.return_tokens) {
      one["prompt_token_ids"] = answer.prompt_of(i).tokens;
      one["token_ids"] = choice.tokens;
    }
    choices.push_back(std::move(one));
  }
  Json out = openai_envelope(answer, "text_completion", std::move(choices));
  out["usage"] = openai_usage(answer);
  return out;
}

// vLLM's: those prompts come before the others. Empty values request nothing.
Field rows_field() {
  Field field{kPromptRows, kJsonText | kJsonTexts, "none",
              "rows of the embedding table instead of a prompt, base64 of little-endian float32 [tokens, width], or a "
              "list of such texts; needs a server with --enable-prompt-embeds (docs/embedding-rows.md)"};
  field.most = 128;
  field.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value.empty() || value == "") return std::nullopt;
    const auto read = [&](const Json& one) -> Wrong {
      AskedPrompt prompt;
      if (auto wrong = read_prompt_rows(one.get_ref<const std::string&>(), params.row_limits, prompt)) return wrong;
      params.prompts.push_back(std::move(prompt));
      return std::nullopt;
    };
    if (!value.is_array()) return read(value);
    for (const Json& one : value)
      if (auto wrong = read(one)) return wrong;
    return std::nullopt;
  };
  return field;
}

}  // namespace

const AnswerFormat kCompletions = {"cmpl-", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

std::vector<Field> completion_fields() {
  Field prompt = prompt_field("prompt", true);
  prompt.required = true;
  prompt.unless = kPromptRows;
  Field echo{"echo", kJsonBoolean, "false",
             "return the prompt before the output; with logprobs, its log-probabilities too"};
  echo.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.echo = value.get<bool>();
    return std::nullopt;
  };
  Field logprobs{"logprobs", kJsonInteger, "none",
                 "return log-probabilities of the tokens, and of this many most likely tokens at each position"};
  logprobs.min = 0;
  logprobs.max = 20;
  logprobs.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.request.sampling.logprobs = value.get<int64_t>();
    return std::nullopt;
  };
  return joined({{model_field(), rows_field(), prompt, max_tokens_field("max_tokens", "16"), stream_field(false),
                  usage_in_stream_field(), answers_field(), stop_field("stop"), seed_field(false), logit_bias_field(),
                  logprobs, echo, suffix_field(), max_tokens_field("n_predict", "16")},
                 sampling_fields(),
                 llama_sampling_fields(),
                 search_fields(),
                 extension_fields(),
                 {response_format_field()},
                 guided_fields(),
                 grammar_fields(),
                 vllm_fields(),
                 {lora_field()},
                 other_completion_fields()});
}

Wrong prepare_completion(const Json& body, GenerationRequest& params) {
  if (params.prompts.empty()) return ApiError::bad("prompt", "is missing");
  if (params.include_usage && !params.stream) return ApiError::bad("stream_options", "needs stream");
  if (params.prompt_logprobs >= 0 && params.stream)
    return ApiError::bad("prompt_logprobs", "cannot be combined with stream");
  if (!body.contains("max_tokens") && !body.contains("n_predict")) params.request.max_tokens = 16;
  if (params.infill && params.echo) return ApiError::bad("suffix", "cannot be combined with echo");
  return prepare_search(body, params);
}

}  // namespace millrace
