#include "workload/remote/completion_api.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int kMaxEventDepth = 32;
constexpr int64_t kMaxTokens = int64_t{1} << 40;

// Words that are a single token in most tokenizers when preceded by a space.
constexpr const char* kWords[] = {
    "the",  "and",   "that", "have",  "for",   "not",  "with",  "you",   "this",  "but",  "his",  "from",   "they",
    "say",  "her",   "she",  "will",  "one",   "all",  "would", "there", "their", "what", "out",  "about",  "who",
    "get",  "which", "when", "make",  "can",   "like", "time",  "just",  "him",   "know", "take", "people", "into",
    "year", "your",  "good", "some",  "could", "them", "see",   "other", "than",  "then", "now",  "look",   "only",
    "come", "its",   "over", "think", "also",  "back", "after", "use",   "two",   "how",  "our",  "work"};

// Null: not JSON, or nested implausibly deep.
Json parse(std::string_view text) {
  bool deep = false;
  Json json = Json::parse(
      text, [&](int depth, Json::parse_event_t, Json&) { return !(deep = deep || depth > kMaxEventDepth); }, false);
  return deep || json.is_discarded() ? Json() : json;
}

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

void read_count(const Json& object, const char* key, int64_t& out) {
  const Json* value = find(object, key);
  if (!value || !value->is_number_integer()) return;
  const auto count = value->get<int64_t>();
  if (count >= 0 && count <= kMaxTokens) out = count;
}

std::string one_line(const std::string& text) {
  std::string out = text.substr(0, 120);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return out;
}

std::string message_of(const Json& json) {
  const Json* error = find(json, "error");
  if (!error) return "";
  if (error->is_string()) return one_line(error->get<std::string>());
  const Json* message = find(*error, "message");
  return one_line(message && message->is_string() ? message->get<std::string>() : "error");
}

void read_openai(CompletionApi api, const Json& json, CompletionChunk& chunk) {
  if (const Json* usage = find(json, "usage")) {
    read_count(*usage, "prompt_tokens", chunk.prompt_tokens);
    read_count(*usage, "completion_tokens", chunk.output_tokens);
    if (const Json* details = find(*usage, "prompt_tokens_details"))
      read_count(*details, "cached_tokens", chunk.cached_tokens);
  }
  const Json* choices = find(json, "choices");
  if (!choices || !choices->is_array() || choices->empty()) return;
  const Json& choice = choices->front();
  const Json* reason = find(choice, "finish_reason");
  chunk.finished = reason && reason->is_string();
  const Json* holder = api == CompletionApi::chat ? find(choice, "delta") : &choice;
  const Json* text = holder ? find(*holder, api == CompletionApi::chat ? "content" : "text") : nullptr;
  if (!text || !text->is_string()) return;
  // A token whose bytes are held back has empty text; the last event, and a chat's first one, may contain no token at
  // all.
  chunk.token = !text->get_ref<const std::string&>().empty() || (!chunk.finished && !find(*holder, "role"));
}

void read_llama(const Json& json, CompletionChunk& chunk) {
  const Json* stop = find(json, "stop");
  chunk.done = chunk.finished = stop && stop->is_boolean() && stop->get<bool>();
  const Json* content = find(json, "content");
  chunk.token = content && content->is_string() && (!chunk.done || !content->get_ref<const std::string&>().empty());
  if (!chunk.done) return;
  read_count(json, "tokens_predicted", chunk.output_tokens);
  read_count(json, "tokens_evaluated", chunk.prompt_tokens);
  if (const Json* timings = find(json, "timings")) read_count(*timings, "cache_n", chunk.cached_tokens);
}

}  // namespace

Result<CompletionApi> find_completion_api(const std::string& name) {
  if (name == "completions") return CompletionApi::completions;
  if (name == "chat") return CompletionApi::chat;
  if (name == "llama") return CompletionApi::llama;
  return Error::user(fmt::format("api: unknown '{}'; available: completions, chat, llama", name));
}

std::string completion_path(CompletionApi api) {
  switch (api) {
    case CompletionApi::completions: return "/v1/completions";
    case CompletionApi::chat: return "/v1/chat/completions";
    case CompletionApi::llama: return "/completion";
  }
  return "";
}

std::string words_of(const std::vector<TokenId>& tokens) {
  std::string text;
  for (TokenId token : tokens)
    text += fmt::format("{}{}", text.empty() ? "" : " ", kWords[static_cast<size_t>(token) % std::size(kWords)]);
  return text;
}

std::string completion_body(const CompletionStyle& style, const WorkloadRequest& request) {
  const std::vector<TokenId> tokens = make_prompt(request, style.vocab);
  const int64_t output = std::max<int64_t>(1, request.output_tokens);
  Json body = {{"stream", true}, {"temperature", 0}, {"ignore_eos", true}};
  if (!style.model.empty()) body["model"] = style.model;
  if (style.api == CompletionApi::chat)
    body["messages"] = Json::array({{{"role", "user"}, {"content", words_of(tokens)}}});
  else if (style.text_prompts)
    body["prompt"] = words_of(tokens);
  else
    body["prompt"] = tokens;
  if (style.api == CompletionApi::llama) {
    body["n_predict"] = output;
    body["cache_prompt"] = true;
  } else {
    body["max_tokens"] = output;
    body["stream_options"] = {{"include_usage", true}};
  }
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CompletionChunk read_completion_chunk(CompletionApi api, std::string_view data) {
  CompletionChunk chunk;
  if (data == "[DONE]") {
    chunk.done = true;
    return chunk;
  }
  const Json json = parse(data);
  if (!json.is_object()) {
    chunk.error = "an event is not a JSON object";
    return chunk;
  }
  chunk.error = message_of(json);
  if (!chunk.error.empty()) return chunk;
  if (api == CompletionApi::llama)
    read_llama(json, chunk);
  else
    read_openai(api, json, chunk);
  return chunk;
}

std::string completion_error(std::string_view body) {
  const Json json = parse(body);
  if (std::string message = message_of(json); !message.empty()) return message;
  const Json* message = find(json, "message");
  return message && message->is_string() ? one_line(message->get<std::string>()) : "";
}

}  // namespace millrace
