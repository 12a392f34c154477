// POST /v1/completions: the older API. Evaluation harnesses use it to score prompts (echo, logprobs, max_tokens 0).
#include <fmt/format.h>

#include <algorithm>
#include <memory>

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

// The four lists of the old logprobs format. A prompt's first token has no log-probability. The tokens must live until
// the text is written.
class OldLogprobs {
 public:
  explicit OldLogprobs(const Answer& answer) : answer_(answer) {}

  // The prompt of a choice, before the choice's own tokens.
  void add_prompt(size_t choice, int64_t& offset) {
    if (answer_.prompt_logprobs.empty() || !answer_.params.echo) return;
    const size_t prompt = choice / static_cast<size_t>(answer_.params.request.n);
    for (const ChosenToken& chosen : answer_.prompt_logprobs[prompt]) add(chosen, offset);
    echoed_ = !tokens_.empty();
  }
  void add(const ChosenToken& chosen, int64_t& offset) {
    tokens_.push_back(&chosen);
    offsets_.push_back(offset);
    offset += static_cast<int64_t>(token_bytes(*answer_.model, chosen.token).size());
  }
  Json json(LateArrays& late) && {
    const auto all = std::make_shared<const OldLogprobs>(std::move(*this));
    const size_t count = all->tokens_.size();
    using Append = void (OldLogprobs::*)(std::string & out, size_t at) const;
    const auto list = [&](Append append) {
      return late.add(count, [all, append](std::string& out, size_t at) { (*all.*append)(out, at); });
    };
    return {{"tokens", list(&OldLogprobs::append_token)},
            {"token_logprobs", list(&OldLogprobs::append_own)},
            {"top_logprobs", list(&OldLogprobs::append_top)},
            {"text_offset", list(&OldLogprobs::append_offset)}};
  }

 private:
  std::string text(TokenId token) const { return token_text(*answer_.model, token); }
  bool first_of_all(size_t at) const { return echoed_ && at == 0; }
  void append_token(std::string& out, size_t at) const { append_json_text(out, text(tokens_[at]->token)); }
  void append_offset(std::string& out, size_t at) const { out += std::to_string(offsets_[at]); }
  void append_own(std::string& out, size_t at) const {
    if (first_of_all(at)) {
      out += "null";
      return;
    }
    append_logprob(out, tokens_[at]->logprob);
  }
  // Tokens with the same text have one member: at the place of the first, with the value of the last.
  void append_top(std::string& out, size_t at) const {
    if (first_of_all(at)) {
      out += "null";
      return;
    }
    std::vector<std::pair<std::string, float>> best;
    for (const TokenLogprob& one : tokens_[at]->top) {
      std::string name = text(one.token);
      const auto same = std::ranges::find(best, name, &std::pair<std::string, float>::first);
      if (same != best.end())
        same->second = one.logprob;
      else
        best.emplace_back(std::move(name), one.logprob);
    }
    out += '{';
    for (const auto& [name, logprob] : best) {
      if (out.back() != '{') out += ',';
      append_json_text(out, name);
      out += ':';
      append_logprob(out, logprob);
    }
    out += '}';
  }

  const Answer& answer_;
  std::vector<const ChosenToken*> tokens_;
  std::vector<int64_t> offsets_;
  bool echoed_ = false;  // the first token is the prompt's
};

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

std::string chunk(Answer& answer, size_t index, const std::string& text, Json logprobs, Json finish) {
  const bool ended = !finish.is_null();
  Json choice = {
      {"index", index}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}};
  Json out = openai_envelope(answer, "text_completion", Json::array({std::move(choice)}));
  if (answer.params.include_usage) out["usage"] = answer.params.continuous_usage ? openai_usage(answer) : Json();
  if (ended) add_own_facts(answer, out);
  return sse_data(out, answer.late);
}

std::string begin(Answer&) { return ""; }

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  const bool wants_logprobs = answer.params.request.sampling.logprobs >= 0;
  std::string text = delta.text;
  OldLogprobs logprobs(answer);
  bool some = delta.logprob != nullptr;
  if (!choice.begun && answer.params.echo) {
    text = answer.prompt_of(index).text + text;
    logprobs.add_prompt(index, choice.text_bytes);
    some = wants_logprobs;
  }
  choice.begun = true;
  if (delta.logprob) logprobs.add(*delta.logprob, choice.text_bytes);
  const bool ended = delta.finish != FinishReason::none;
  if (text.empty() && !some && !ended) return "";
  const bool plain = !some && !(ended && !own_facts(answer).empty());
  if (plain && !(answer.params.include_usage && answer.params.continuous_usage))
    return text_chunk(answer, index, text, ended ? openai_finish(answer, choice) : nullptr);
  return chunk(answer, index, text, some ? std::move(logprobs).json(answer.late) : Json(),
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
      OldLogprobs lists(answer);
      int64_t offset = 0;
      lists.add_prompt(i, offset);
      for (const ChosenToken& chosen : choice.logprobs) lists.add(chosen, offset);
      logprobs = std::move(lists).json(answer.late);
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
