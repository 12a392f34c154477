// llama-server's own API: completion, the tokenizer, and the endpoints that editors and dashboards read.
//
//   stream   data: {"content", "stop": false} ...   data: {"content": "", "stop": true, timings}      no [DONE]
#include <fmt/format.h>

#include <algorithm>

#include "models/weight_source.h"
#include "prompt/chat_prompt.h"
#include "run/language_model.h"
#include "server/api/api.h"
#include "server/api/known_fields.h"
#include "server/api/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/structured_fields.h"
#include "server/generation/infill.h"
#include "server/models/adapters.h"
#include "server/service.h"
#include "text/detokenizer.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

const char* error_type(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::too_long: return "exceed_context_size_error";
    case ApiErrorKind::unauthorized: return "authentication_error";
    case ApiErrorKind::forbidden: return "permission_error";
    case ApiErrorKind::not_found:
    case ApiErrorKind::no_model: return "not_found_error";
    case ApiErrorKind::not_built: return "not_supported_error";
    case ApiErrorKind::rate_limited:
    case ApiErrorKind::no_quota: return "rate_limit_error";
    case ApiErrorKind::overloaded:
    case ApiErrorKind::draining:
    case ApiErrorKind::busy: return "unavailable_error";
    case ApiErrorKind::time_limit:
    case ApiErrorKind::no_storage:
    case ApiErrorKind::internal: return "server_error";
    default: return "invalid_request_error";
  }
}

Json error_json(const ApiError& error) {
  Json inner = {{"code", http_status(error.kind)}, {"message", error.message}, {"type", error_type(error.kind)}};
  if (!error.field.empty()) inner["param"] = error.field;
  if (error.kind == ApiErrorKind::too_long) {
    inner["n_prompt_tokens"] = error.prompt_tokens;
    inner["n_ctx"] = error.context;
  }
  return {{"error", std::move(inner)}};
}

HttpReply refuse(const ApiError& error) {
  return {.status = http_status(error.kind), .body = to_text(error_json(error))};
}
std::string refuse_in_stream(const ApiError& error) { return sse_data(error_json(error)); }

// {"id": 7, "token": "the", "bytes": [116,104,101], "logprob": -0.5, "top_logprobs": [the same without "top_logprobs"]}
void append_probability(std::string& out, const Answer& answer, const ChosenToken& chosen) {
  const auto one = [&](TokenId token, float logprob) {
    out.append("{\"id\":").append(std::to_string(token)).append(",\"token\":");
    append_json_text(out, token_text(*answer.model, token));
    out += ",\"bytes\":";
    append_token_bytes(out, *answer.model, token);
    out += ",\"logprob\":";
    append_logprob(out, logprob);
  };
  one(chosen.token, chosen.logprob);
  out += ",\"top_logprobs\":[";
  for (const TokenLogprob& top : chosen.top) {
    if (&top != chosen.top.data()) out += ',';
    one(top.token, top.logprob);
    out += '}';
  }
  out += "]}";
}

std::string begin(Answer&) { return ""; }

// What applies to a request, under llama-server's names.
Json settings_json(const Request& request) {
  const SamplingOptions& s = request.sampling;
  return {{"seed", s.seed},
          {"temperature", s.temperature},
          {"dynatemp_range", s.dynamic_temperature_range},
          {"dynatemp_exponent", s.dynamic_temperature_exponent},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"typical_p", s.typical_p},
          {"repeat_penalty", s.repetition_penalty},
          {"repeat_last_n", s.penalty_window},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"dry_multiplier", s.dry_multiplier},
          {"dry_base", s.dry_base},
          {"dry_allowed_length", s.dry_allowed_length},
          {"dry_penalty_last_n", s.dry_window},
          {"dry_sequence_breakers", s.dry_breakers},
          {"mirostat", s.mirostat},
          {"mirostat_tau", s.mirostat_tau},
          {"mirostat_eta", s.mirostat_eta},
          {"n_predict", request.max_tokens},
          {"max_tokens", request.max_tokens},
          {"ignore_eos", request.ignore_eos},
          {"stop", request.stop}};
}

Json last_json(const Answer& answer, size_t index, std::string content, Json tokens) {
  const Choice& choice = answer.choices[index];
  const char* stop_type = choice.finish != FinishReason::stop ? "limit" : choice.stopped_by.empty() ? "eos" : "word";
  return {{"index", index},
          {"content", std::move(content)},
          {"tokens", std::move(tokens)},
          {"id_slot", -1},
          {"stop", true},
          {"model", answer.model_name},
          {"tokens_predicted", answer.generated_tokens},
          {"tokens_evaluated", answer.prompt_tokens},
          {"generation_settings", settings_json(answer.params.request)},
          {"prompt", answer.prompt_of(index).text},
          {"truncated", answer.params.truncated},
          {"stop_type", stop_type},
          {"stopping_word", choice.stopped_by},
          {"tokens_cached", answer.cached_tokens},
          {"timings", timings_json(answer)}};
}

std::string delta(Answer& answer, size_t index, const Delta& delta) {
  std::string out;
  if (!delta.text.empty() || delta.token >= 0) {
    Json tokens = Json::array();
    if (delta.token >= 0) tokens.push_back(delta.token);
    Json part = {
        {"index", index}, {"content", delta.text}, {"tokens", std::move(tokens)}, {"stop", false}, {"id_slot", -1}};
    if (delta.logprob)
      part["completion_probabilities"] =
          answer.late.add(1, [&](std::string& text, size_t) { append_probability(text, answer, *delta.logprob); });
    out = sse_data(part, answer.late);
  }
  if (delta.finish != FinishReason::none) {
    Json last = last_json(answer, index, "", Json::array());
    add_own_facts(answer, last);
    out += sse_data(last);
  }
  return out;
}

std::string end(Answer&) { return ""; }

Json whole(Answer& answer) {
  Json list = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& choice = answer.choices[i];
    Json one = last_json(answer, i, choice.text, choice.tokens);
    if (answer.params.request.sampling.logprobs >= 0)
      one["completion_probabilities"] =
          answer.late.add(choice.logprobs.size(), [&answer, &choice](std::string& out, size_t token) {
            append_probability(out, answer, choice.logprobs[token]);
          });
    list.push_back(std::move(one));
  }
  return list.size() == 1 ? Json(list[0]) : list;
}

const AnswerFormat kCompletion = {"cmpl-", "text/event-stream", ": ping\n\n", begin, delta, end, whole};

Field read_by_endpoint(const char* name, unsigned types, const char* default_value, const char* help,
                       bool required = false) {
  Field field{name, types, default_value, help};
  field.required = required;
  return field;
}

std::vector<Field> llama_completion_fields(std::vector<Field> prompt) {
  Field probabilities{
      "n_probs", kJsonInteger, "0",
      "return log-probabilities of the tokens, and of this many most likely tokens at each position; 0: none"};
  probabilities.min = 0;
  probabilities.max = 100;
  probabilities.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value.get<int64_t>() > 0) params.request.sampling.logprobs = value.get<int64_t>();
    return std::nullopt;
  };
  Field tokens{"return_tokens", kJsonBoolean, "false", "return the output's token ids with its text"};
  tokens.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.return_tokens = value.get<bool>();
    return std::nullopt;
  };
  return joined({std::move(prompt),
                 {max_tokens_field("n_predict", "-1"), stream_field(false), stop_field("stop"), seed_field(true),
                  logit_bias_field(), probabilities, tokens},
                 llama_sampling_fields(),
                 sampling_fields({"repetition_penalty", "penalty_window", "dry_window", "dynamic_temperature_range",
                                  "dynamic_temperature_exponent"}),
                 extension_fields(),
                 grammar_fields(),
                 {response_format_field()},
                 {lora_field()},
                 other_llama_completion_fields()});
}

Wrong prepare_llama_completion(const Json& body, GenerationRequest& params) {
  if (!body.contains("n_predict")) params.request.max_tokens = -1;
  return std::nullopt;
}

// A piece that is not valid UTF-8 by itself is returned as a list of bytes.
Json piece_json(const LanguageModel& model, TokenId token) {
  const std::string bytes = token_bytes(model, token);
  Utf8Stream stream;
  if (stream.push(bytes) == bytes && stream.held_bytes() == 0) return bytes;
  Json list = Json::array();
  for (char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return list;
}

// vLLM's form: the text is in `prompt`, or there is a conversation.
Handled tokenize_vllm(Call& call) {
  if (call.body.contains("prompt"))
    call.params.prompts = {{call.body["prompt"].get<std::string>(), {}, call.body.value("add_special_tokens", true)}};
  if (auto wrong = call.service.make_prompts(call.params); wrong && wrong->kind != ApiErrorKind::too_long)
    return *wrong;
  const std::vector<TokenId>& tokens = call.params.prompts.front().tokens;
  Json out = {{"count", tokens.size()}, {"max_model_len", call.served().context}, {"tokens", tokens}};
  if (call.body.value("return_token_strs", false)) {
    out["token_strs"] = Json::array();
    for (TokenId token : tokens) out["token_strs"].push_back(token_text(call.model(), token));
  }
  return json_reply(out);
}

Handled tokenize(Call& call) {
  if (!call.body.contains("content") && (call.body.contains("prompt") || !call.params.messages.is_null()))
    return tokenize_vllm(call);
  if (!call.body.contains("content")) return ApiError::bad("content", "is missing");
  auto tokens = call.model().encode(call.body["content"].get_ref<const std::string&>(),
                                    call.body.value("add_special", false), call.body.value("parse_special", true));
  if (!tokens.ok()) return ApiError::from(tokens.error());
  if (!call.body.value("with_pieces", false)) return json_reply({{"tokens", *tokens}});
  Json list = Json::array();
  for (TokenId token : *tokens) list.push_back({{"id", token}, {"piece", piece_json(call.model(), token)}});
  return json_reply({{"tokens", std::move(list)}});
}

Handled detokenize(Call& call) {
  const std::string text = call.model().decode(call.body["tokens"].get<std::vector<TokenId>>(), /*skip_special=*/false);
  return json_reply({{"content", text}, {"prompt", text}});  // `prompt` is for vLLM's clients
}

Handled apply_template(Call& call) {
  if (auto wrong = call.service.make_prompts(call.params); wrong && wrong->kind != ApiErrorKind::too_long)
    return *wrong;
  return json_reply({{"prompt", call.params.prompts.front().text}});
}

std::string special_text(const LanguageModel& model, std::optional<TokenId> TokenizerSpec::*token) {
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  if (!tokenizer || !(tokenizer->spec().*token)) return "";
  const auto id = static_cast<size_t>(*(tokenizer->spec().*token));
  return id < tokenizer->spec().tokens.size() ? tokenizer->spec().tokens[id] : "";
}

// Which source of weights was chosen and why, and the policy that it found; "": all weights are in memory.
std::string weights_text(const LanguageModel& model) {
  const WeightSource* const source = model.parts().model->source();
  const std::string policy = source ? source->policy().text : "";
  const std::string& note = model.parts().weights_note;
  return note.empty() || policy.empty() ? note + policy : note + "; " + policy;
}

Handled props(Call& call) {
  Request defaults;
  defaults.sampling = call.served().sampling;
  defaults.stop = call.served().stop_strings;
  defaults.max_tokens = -1;
  Json params = settings_json(defaults);
  if (!call.service.options().seed_given) params["seed"] = -1;
  return json_reply({{"default_generation_settings",
                      {{"id", 0},
                       {"id_task", -1},
                       {"n_ctx", call.served().context},
                       {"speculative", false},
                       {"is_processing", false},
                       {"params", std::move(params)}}},
                     {"total_slots", call.served().engine_options.max_streams},
                     {"model_path", call.served().name()},
                     {"model_alias", call.served().name()},
                     {"modalities", {{"vision", false}, {"audio", false}}},
                     {"chat_template", call.model().parts().files->chat_template},
                     {"bos_token", special_text(call.model(), &TokenizerSpec::bos)},
                     {"eos_token", special_text(call.model(), &TokenizerSpec::eos)},
                     {"build_info", "millrace"},
                     {"weights", weights_text(call.model())},
                     {"is_sleeping", false}});
}

// The engine has no slots; each running stream is shown as a busy one.
Handled slots(Call& call) {
  const int64_t running = call.engine().stats().running, total = call.served().engine_options.max_streams;
  if (running >= total && call.request.query.find("fail_on_no_slot=1") != std::string::npos)
    return ApiError{ApiErrorKind::draining, "no slot available", ""};
  Json list = Json::array();
  for (int64_t i = 0; i < total; ++i)
    list.push_back({{"id", i},
                    {"id_task", -1},
                    {"n_ctx", call.served().context},
                    {"speculative", false},
                    {"is_processing", i < running}});
  return json_reply(list);
}

Handled act_on_slot(Call&) {
  return ApiError{ApiErrorKind::not_built,
                  "slots: there are none to save, restore or erase; common prompt prefixes are shared automatically",
                  ""};
}
Handled change_props(Call&) {
  return ApiError{ApiErrorKind::not_built, "props: cannot be changed while the server runs", ""};
}

}  // namespace

const Dialect kLlamaServer = {"llama-server",
                              "Errors are `{\"error\": {\"code\", \"message\", \"type\", \"param\"}}` with the status "
                              "in `code`. Streams are server-sent events; the "
                              "last one has `\"stop\": true`.",
                              refuse, refuse_in_stream};

std::vector<Endpoint> llama_server_endpoints() {
  std::vector<Endpoint> list;
  Field prompt = prompt_field("prompt", true);
  prompt.required = true;
  list.push_back({.method = "POST",
                  .path = "/completion",
                  .dialect = &kLlamaServer,
                  .summary = "Continues a text.",
                  .fields = llama_completion_fields({prompt}),
                  .prepare = prepare_llama_completion,
                  .format = &kCompletion});
  list.push_back({.method = "POST",
                  .path = "/infill",
                  .dialect = &kLlamaServer,
                  .summary = "Generates the text between two others, with a model trained for it.",
                  .fields = llama_completion_fields(infill_fields()),
                  .prepare = prepare_llama_completion,
                  .format = &kCompletion});
  Field chat = messages_field();
  chat.required = false;
  chat.help = "or a conversation, whose prompt tokens are returned; vLLM's form";
  list.push_back(
      {.method = "POST",
       .path = "/tokenize",
       .dialect = &kLlamaServer,
       .summary = "Converts text to token ids.",
       .fields =
           {read_by_endpoint("content", kJsonText, "", "the text"),
            read_by_endpoint("add_special", kJsonBoolean, "false", "add the start token"),
            read_by_endpoint("parse_special", kJsonBoolean, "true",
                             "special tokens written in the text are converted to their ids"),
            read_by_endpoint(
                "with_pieces", kJsonBoolean, "false",
                "return each token as an object with id and piece; a piece that is not valid UTF-8 is a list of bytes"),
            read_by_endpoint(
                "prompt", kJsonText, "",
                "the text, in vLLM's form of this endpoint, which returns `count`, `max_model_len` and `tokens`"),
            chat, read_by_endpoint("add_special_tokens", kJsonBoolean, "true", "add the start token; vLLM's form"),
            read_by_endpoint("return_token_strs", kJsonBoolean, "false",
                             "also return each token's text, as `token_strs`; vLLM's form")},
       .handle = tokenize});
  Field tokens = read_by_endpoint("tokens", kJsonTokens, "", "the token ids", true);
  tokens.most = size_t{16} << 20;
  list.push_back({.method = "POST",
                  .path = "/detokenize",
                  .dialect = &kLlamaServer,
                  .summary = "Converts token ids to text.",
                  .fields = {tokens},
                  .handle = detokenize});
  list.push_back({.method = "POST",
                  .path = "/apply-template",
                  .dialect = &kLlamaServer,
                  .summary = "Returns the prompt that /v1/chat/completions makes of the same body.",
                  .fields = chat_completion_fields(),
                  .prepare = prepare_chat_completion,
                  .handle = apply_template});
  list.push_back({.method = "GET",
                  .path = "/props",
                  .dialect = &kLlamaServer,
                  .summary = "The model, its chat template and the default sampling options.",
                  .handle = props});
  list.push_back(
      {.method = "GET",
       .path = "/slots",
       .dialect = &kLlamaServer,
       .summary = "How many streams are running, shown as slots; `?fail_on_no_slot=1` returns 503 when all are busy.",
       .handle = slots});
  list.push_back({.method = "POST",
                  .path = "/slots/*",
                  .dialect = &kLlamaServer,
                  .summary = "Not supported: there are no slots to save, restore or erase.",
                  .handle = act_on_slot,
                  .without_model = true,
                  .raw_body = true});
  list.push_back({.method = "POST",
                  .path = "/props",
                  .dialect = &kLlamaServer,
                  .summary = "Not supported.",
                  .handle = change_props,
                  .without_model = true,
                  .raw_body = true});
  return list;
}

}  // namespace millrace
