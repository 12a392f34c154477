// Ollama's API. Streams are lines of JSON; the last one has "done": true and times in nanoseconds.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "run/language_model.h"
#include "server/api/api.h"
#include "server/api/known_fields.h"
#include "server/api/models.h"
#include "server/api/openai.h"
#include "server/api/sampling_fields.h"
#include "server/api/structured_fields.h"
#include "server/api/tool_fields.h"
#include "server/generation/infill.h"
#include "server/page.h"
#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

std::string error_text(const ApiError& error) { return to_text(Json{{"error", error.message}}); }
HttpReply refuse(const ApiError& error) {
  return {.status = error.kind == ApiErrorKind::overloaded ? 503 : http_status(error.kind), .body = error_text(error)};
}
std::string refuse_in_stream(const ApiError& error) { return error_text(error) + "\n"; }

std::string time_text(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}
int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

Json head(const Answer& answer) { return {{"model", answer.model_name}, {"created_at", time_text(answer.created)}}; }

// The content of one line: the new part of a stream, or the whole answer.
struct LineContent {
  std::string text, thinking;
  Json calls = Json::array();
  Json logprobs;  // null: none
};

// OpenAI's format, but without top_logprobs that were not requested. The tokens must live until the text is written.
void add_logprobs(Answer& answer, const std::vector<ChosenToken>& tokens, LineContent& content) {
  if (tokens.empty()) return;
  content.logprobs = answer.late.add(tokens.size(), [&answer, &tokens](std::string& out, size_t token) {
    append_openai_logprob(out, answer, tokens[token], !tokens[token].top.empty());
  });
}

void add_call(LineContent& content, const ToolCall& call) {
  Json arguments = parse_json(call.arguments);
  if (!arguments.is_object()) arguments = Json::object();  // cut off
  content.calls.push_back(
      {{"id", call.id},
       {"function", {{"index", content.calls.size()}, {"name", call.name}, {"arguments", std::move(arguments)}}}});
}

void add_chat_text(Json& out, const LineContent& content) {
  out["message"] = {{"role", "assistant"}, {"content", content.text}};
  if (!content.thinking.empty()) out["message"]["thinking"] = content.thinking;
  if (!content.calls.empty()) out["message"]["tool_calls"] = content.calls;
}
void add_generated_text(Json& out, const LineContent& content) {
  out["response"] = content.text;
  if (!content.thinking.empty()) out["thinking"] = content.thinking;
}

template <void (*add_text)(Json&, const LineContent&)>
Json last(const Answer& answer, const LineContent& content) {
  Json out = head(answer);
  add_text(out, content);
  if (!content.logprobs.is_null()) out["logprobs"] = content.logprobs;
  const RequestTimings& t = answer.timings;
  out["done"] = true;
  out["done_reason"] = answer.params.only_load ? (answer.params.keep_seconds == 0.0 ? "unload" : "load")
                       : answer.choices.front().finish == FinishReason::stop ? "stop"
                                                                             : "length";
  if (answer.params.only_load) return out;
  out["total_duration"] = nanoseconds(answer.params.waited_seconds + answer.total_seconds);
  out["load_duration"] = nanoseconds(answer.params.waited_seconds);
  out["prompt_eval_count"] = answer.prompt_tokens;
  out["prompt_eval_duration"] = nanoseconds(t.prefill_seconds);
  out["eval_count"] = answer.generated_tokens;
  out["eval_duration"] = nanoseconds(t.decode_seconds);
  if (answer.params.keep_tokens) {  // for a later request to continue from
    std::vector<TokenId> context = answer.prompt_of(0).tokens;
    const std::vector<TokenId>& written = answer.choices.front().tokens;
    context.insert(context.end(), written.begin(), written.end());
    out["context"] = std::move(context);
  }
  return out;
}

std::string begin(Answer&) { return ""; }

template <void (*add_text)(Json&, const LineContent&)>
std::string delta(Answer& answer, size_t index, const Delta& delta) {
  Choice& choice = answer.choices[index];
  LineContent content{.text = delta.text, .thinking = ""};
  for (const AnswerPiece& piece : delta.pieces) {
    if (piece.kind == AnswerPiece::Kind::reasoning && answer.params.reasoning.shown) content.thinking += piece.text;
    if (piece.kind == AnswerPiece::Kind::call_end && choice.streamed_calls < choice.calls.size())
      add_call(content, choice.calls[choice.streamed_calls++]);
  }
  if (delta.logprob) choice.logprobs.push_back(*delta.logprob);  // also of tokens whose text is still buffered
  if (content.text.empty() && content.thinking.empty() && content.calls.empty()) return "";
  Json out = head(answer);
  add_text(out, content);
  const std::vector<ChosenToken> logprobs = std::exchange(choice.logprobs, {});
  add_logprobs(answer, logprobs, content);
  if (!content.logprobs.is_null()) out["logprobs"] = content.logprobs;
  out["done"] = false;
  return to_text(out, answer.late) + "\n";
}

template <void (*add_text)(Json&, const LineContent&)>
std::string end(Answer& answer) {
  LineContent content;
  add_logprobs(answer, answer.choices.front().logprobs, content);
  Json out = last<add_text>(answer, content);
  add_own_facts(answer, out);
  return to_text(out, answer.late) + "\n";
}

template <void (*add_text)(Json&, const LineContent&)>
Json whole(Answer& answer) {
  const Choice& choice = answer.choices.front();
  LineContent content{.text = choice.text, .thinking = answer.params.reasoning.shown ? choice.reasoning : ""};
  for (const ToolCall& call : choice.calls) add_call(content, call);
  add_logprobs(answer, choice.logprobs, content);
  return last<add_text>(answer, content);
}

const AnswerFormat kChat = {
    "", "application/x-ndjson", "", begin, delta<add_chat_text>, end<add_chat_text>, whole<add_chat_text>};
const AnswerFormat kGenerate = {"",
                                "application/x-ndjson",
                                "",
                                begin,
                                delta<add_generated_text>,
                                end<add_generated_text>,
                                whole<add_generated_text>};

Field options_field() {
  Field context{
      "num_ctx", kJsonInteger, "server default",
      "maximum tokens of prompt and output together; never more than the context that the model is served with"};
  context.min = 1;
  context.max = 2147483647;
  context.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.most_context = value.get<int64_t>();
    return std::nullopt;
  };
  Field options{"options", kJsonObject, "{}", "sampling options"};
  options.fields = joined(
      {{context, max_tokens_field("num_predict", "-1"), seed_field(true), stop_field("stop"),
        sampling_field("repeat_penalty", "repetition_penalty"), sampling_field("repeat_last_n", "penalty_window")},
       sampling_fields({"repetition_penalty", "penalty_window"}),
       other_ollama_options()});
  return options;
}

std::vector<Field> logprob_fields() {
  Field logprobs{"logprobs", kJsonBoolean, "false",
                 "return log-probabilities of the tokens, from the model's distribution before any sampling option"};
  Field top{"top_logprobs", kJsonInteger, "0",
            "number of most likely tokens to return at each position; needs logprobs"};
  top.min = 0;
  top.max = 20;
  return {logprobs, top};
}

Field truncate_field() {
  Field truncate{"truncate", kJsonBoolean, "false",
                 "true: a prompt that does not fit loses its beginning, and the Millrace-Truncated-Tokens header "
                 "reports how much; false: it is rejected"};
  truncate.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value.get<bool>()) params.truncate_prompt = -1;
    return std::nullopt;
  };
  return truncate;
}

Field context_field() {
  Field context{
      "context", kJsonTokens, "none",
      "the `context` of an earlier response, which this one continues; cannot be combined with raw or suffix"};
  context.most = 1 << 20;
  context.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.context_tokens = value.get<std::vector<TokenId>>();
    return std::nullopt;
  };
  return context;
}

// true, false, or how much: "low", "medium", "high".
Field think_field() {
  Field think{"think", kJsonBoolean | kJsonText, "template default",
              "whether to think, or how much (low, medium, high), for chat templates that support it; thinking is "
              "returned in the field thinking"};
  think.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value.is_string())
      set_reasoning_effort(params, value.get<std::string>());
    else
      params.variables["enable_thinking"] = value.get<bool>();
    params.reasoning.shown = value != false;
    return std::nullopt;
  };
  return think;
}

std::vector<Field> ollama_fields(std::vector<Field> prompt, bool generate) {
  return joined({{model_field()},
                 std::move(prompt),
                 {stream_field(true), options_field(), keep_alive_field(), ollama_format_field(), think_field(),
                  truncate_field()},
                 logprob_fields(),
                 other_ollama_fields(generate)});
}

Wrong prepare_chat(const Json& body, GenerationRequest& params) {
  if (!body.contains("stream")) params.stream = true;
  if (!body.contains("options") || !body["options"].contains("num_predict"))
    params.request.max_tokens = params.served ? params.served->max_tokens : -1;
  const bool logprobs = body.value("logprobs", false);
  const auto top = body.value("top_logprobs", int64_t{0});
  if (top > 0 && !logprobs) return ApiError::bad("top_logprobs", "needs logprobs");
  params.request.sampling.logprobs = logprobs ? top : -1;
  for (const Json& message : params.messages)
    if (message.contains("images") && !is_empty(message["images"]))
      return ApiError::unsupported("messages", "images are not supported");
  return check_tools(params);
}

// An empty prompt loads the model, or with keep_alive 0 unloads it.
Wrong prepare_generate(const Json& body, GenerationRequest& params) {
  const std::string prompt = body.value("prompt", std::string());
  params.only_load = prompt.empty();
  const bool raw = body.value("raw", false);
  for (const char* name : {"context", "system"})
    if (raw && body.contains(name) && !is_empty(body[name])) return ApiError::bad(name, "cannot be combined with raw");
  if (params.infill && !params.context_tokens.empty())
    return ApiError::bad("context", "cannot be combined with suffix");
  params.keep_tokens = !raw && !params.infill && !params.only_load;
  if (!body.value("raw", false) && !params.infill) {
    params.messages = Json::array();
    if (body.contains("system")) params.messages.push_back({{"role", "system"}, {"content", body["system"]}});
    params.messages.push_back({{"role", "user"}, {"content", prompt}});
  } else {
    params.prompts.push_back({prompt, {}});
  }
  return prepare_chat(body, params);
}

Wrong prepare_conversation(const Json& body, GenerationRequest& params) {
  params.only_load = !body.contains("messages") || body["messages"].empty();
  if (params.only_load) params.messages = Json::array();
  return prepare_chat(body, params);
}

constexpr int kMaxOpened = 8;  // model files opened for one list; the next list opens more

std::string parameter_text(int64_t parameters) {
  if (parameters <= 0) return "";
  return parameters >= 1'000'000'000 ? fmt::format("{:.1f}B", static_cast<double>(parameters) * 1e-9)
                                     : fmt::format("{:.1f}M", static_cast<double>(parameters) * 1e-6);
}

Json details(const ModelFact& fact) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", fact.family},
          {"families", fact.family.empty() ? Json::array() : Json::array({fact.family})},
          {"parameter_size", parameter_text(fact.parameters)},
          {"quantization_level", fact.quantization}};
}

Json model_json(const Service& service, const ModelStatus& model, const std::string& name, const ModelFact& fact) {
  const int64_t size = fact.bytes > 0 || !model.served ? fact.bytes : model.served->model->info().weight_bytes;
  return {{"name", name},
          {"model", name},
          {"modified_at", time_text(fact.modified > 0 ? fact.modified : service.started())},
          {"size", size},
          {"digest", fact.digest},
          {"details", details(fact)}};
}

Handled tags(Call& call) {
  Json models = Json::array();
  int may_open = kMaxOpened;
  for (const ModelStatus& model : call.service.models().list()) {
    const ModelFact fact = call.service.model_facts().of(model, may_open);
    models.push_back(model_json(call.service, model, model.name, fact));
    for (const std::string& alias : model.aliases) models.push_back(model_json(call.service, model, alias, fact));
  }
  return json_reply({{"models", std::move(models)}});
}

constexpr double kForever = 292.0 * 365 * 86400;  // as Ollama writes it

Handled ps(Call& call) {
  Json models = Json::array();
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const ModelStatus& model : call.service.models().list()) {
    if (!model.served) continue;
    int may_open = 0;
    Json json = model_json(call.service, model, model.name, call.service.model_facts().of(model, may_open));
    json["expires_at"] = time_text(now + static_cast<int64_t>(std::min(model.idle_left.value_or(kForever), kForever)));
    json["size_vram"] = 0;
    json["context_length"] = model.served->context;
    models.push_back(std::move(json));
  }
  return json_reply({{"models", std::move(models)}});
}

Json capabilities(const LanguageModel& model) {
  Json out = Json::array({"completion", "tools"});
  if (reasoning_marks_of(model.parts().files->chat_template)) out.push_back("thinking");
  return out;
}

Handled show(Call& call) {
  const ModelInfo& info = call.model().info();
  ModelFact fact;
  int may_open = 0;
  for (const ModelStatus& model : call.service.models().list())
    if (model.name == call.served().name()) fact = call.service.model_facts().of(model, may_open);
  const ModelStore* store = call.service.models().store();
  const auto stored = store ? store->find(call.served().name()) : std::nullopt;
  Modelfile about = stored ? stored->about : Modelfile();
  if (about.from.empty()) about.from = call.served().name();
  std::string parameters;
  for (const auto& [name, value] : about.parameters) parameters += fmt::format("{:<30} {}\n", name, value);
  return json_reply({{"modelfile", modelfile_text(about)},
                     {"parameters", parameters},
                     {"system", about.system},
                     {"license", about.license},
                     {"template", call.model().parts().files->chat_template},
                     {"modified_at", time_text(fact.modified > 0 ? fact.modified : call.service.started())},
                     {"details", details(fact)},
                     {"model_info",
                      {{"general.architecture", info.architecture},
                       {"general.parameter_count", info.parameters},
                       {info.architecture + ".context_length", info.context}}},
                     {"capabilities", capabilities(call.model())}});
}

Handled version(Call&) { return json_reply({{"version", "0.12.0"}}); }

// Browsers get the web page, if it is served.
Handled root(Call& call) {
  const bool page_served = call.service.options().page;
  if (auto page = page_served ? page_reply(call.request) : std::nullopt) return *page;
  return HttpReply{
      .content_type = "text/plain; charset=utf-8", .headers = {{"Vary", "Accept"}}, .body = "Ollama is running"};
}

}  // namespace

const Dialect kOllama = {"Ollama",
                         "Errors are `{\"error\": \"text\"}`, in a stream as one more line. Streams are lines of JSON, "
                         "and the default; the last line has `\"done\": true` and "
                         "times in nanoseconds.",
                         refuse, refuse_in_stream};

std::vector<Endpoint> ollama_endpoints() {
  Field messages = messages_field();
  messages.required = false;
  messages.help += "; empty: loads the model, or with keep_alive 0 unloads it";
  messages.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    return value.empty() ? std::nullopt : read_messages(value, params);
  };
  Field prompt{"prompt", kJsonText, "",
               "the message to answer; empty: loads the model, or with keep_alive 0 unloads it"};
  Field system{"system", kJsonText, "none", "system prompt"};
  Field raw{"raw", kJsonBoolean, "false", "use the prompt as it is, without the chat template"};
  Field shown{"model", kJsonText, "the server's first model", "name or alias of the model"};
  shown.set = model_field().set;
  Field named = shown;
  named.name = "name";
  named.help = "older name of the field model";
  std::vector<Endpoint> list;
  list.push_back({.method = "POST",
                  .path = "/api/chat",
                  .dialect = &kOllama,
                  .summary = "Generates the next message of a conversation.",
                  .fields = ollama_fields({messages, ollama_tools_field()}, false),
                  .prepare = prepare_conversation,
                  .format = &kChat});
  list.push_back({.method = "POST",
                  .path = "/api/generate",
                  .dialect = &kOllama,
                  .summary = "Answers one message, or continues a text.",
                  .fields = ollama_fields({prompt, suffix_field(), system, raw, context_field()}, true),
                  .prepare = prepare_generate,
                  .format = &kGenerate});
  list.push_back({.method = "GET",
                  .path = "/api/tags",
                  .dialect = &kOllama,
                  .summary = "Lists the served models under all of their names, loaded or not.",
                  .handle = tags,
                  .without_model = true});
  list.push_back({.method = "POST",
                  .path = "/api/show",
                  .dialect = &kOllama,
                  .summary = "Describes the model.",
                  .fields = {named, shown, unsupported_field("verbose", is_false)},
                  .handle = show});
  list.push_back({.method = "GET",
                  .path = "/api/ps",
                  .dialect = &kOllama,
                  .summary = "Lists the loaded models.",
                  .handle = ps,
                  .without_model = true});
  list.push_back({.method = "GET",
                  .path = "/api/version",
                  .dialect = &kOllama,
                  .summary = "Returns the version of the API.",
                  .handle = version,
                  .without_model = true});
  list.push_back({.method = "GET",
                  .path = "/",
                  .dialect = &kOllama,
                  .summary = "The web page, without a key, for clients that accept HTML; otherwise the text by which "
                             "clients recognize a server.",
                  .handle = root,
                  .without_model = true});
  return list;
}

}  // namespace millrace
