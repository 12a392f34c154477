#include "exactness/completion_answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "workload/remote/completion_api.h"
#include "workload/remote/event_stream.h"

namespace millrace {
namespace {

using AnswerJson = nlohmann::ordered_json;

constexpr int64_t kMaxAnswerDepth = 32;

const AnswerJson* member(const AnswerJson* object, const char* key) {
  if (!object || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

std::string text_member(const AnswerJson* object, const char* key) {
  const AnswerJson* value = member(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> number_at(const AnswerJson* list, size_t at) {
  if (!list || !list->is_array() || at >= list->size() || !(*list)[at].is_number()) return std::nullopt;
  return (*list)[at].get<double>();
}

// Servers list tokens of equal probability in any order.
void sort_top(AnsweredToken& token) {
  std::ranges::sort(token.top, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
}

// "content": [{"token", "logprob", "top_logprobs": [...]}, ...]
void read_chat_logprobs(const AnswerJson& content, std::vector<AnsweredToken>& out) {
  for (const AnswerJson& one : content) {
    AnsweredToken token{.text = text_member(&one, "token"), .logprob = {}, .top = {}};
    const AnswerJson* logprob = member(&one, "logprob");
    if (logprob && logprob->is_number()) token.logprob = logprob->get<double>();
    const AnswerJson* top = member(&one, "top_logprobs");
    if (top && top->is_array())
      for (const AnswerJson& other : *top)
        if (const AnswerJson* value = member(&other, "logprob"); value && value->is_number())
          token.top.emplace_back(text_member(&other, "token"), value->get<double>());
    sort_top(token);
    out.push_back(std::move(token));
  }
}

// "tokens", "token_logprobs", "top_logprobs": lists of the same length
void read_old_logprobs(const AnswerJson& logprobs, std::vector<AnsweredToken>& out) {
  const AnswerJson* texts = member(&logprobs, "tokens");
  if (!texts || !texts->is_array()) return;
  const AnswerJson *own = member(&logprobs, "token_logprobs"), *tops = member(&logprobs, "top_logprobs");
  for (size_t i = 0; i < texts->size(); ++i) {
    AnsweredToken token;
    if ((*texts)[i].is_string()) token.text = (*texts)[i].get<std::string>();
    token.logprob = number_at(own, i);
    if (tops && tops->is_array() && i < tops->size() && (*tops)[i].is_object())
      for (const auto& [text, value] : (*tops)[i].items())
        if (value.is_number()) token.top.emplace_back(text, value.get<double>());
    sort_top(token);
    out.push_back(std::move(token));
  }
}

// Adds a choice, or a piece of one. `holder`: the object with the text of a chat.
void add_choice(CompletionApi api, const AnswerJson& choice, const char* holder, CompletionAnswer& out) {
  const AnswerJson* message = api == CompletionApi::chat ? member(&choice, holder) : &choice;
  out.text += text_member(message, api == CompletionApi::chat ? "content" : "text");
  const std::string reasoning = text_member(message, "reasoning_content");
  out.reasoning += reasoning.empty() ? text_member(message, "reasoning") : reasoning;
  if (const std::string finish = text_member(&choice, "finish_reason"); !finish.empty()) out.finish = finish;
  const AnswerJson* logprobs = member(&choice, "logprobs");
  if (!logprobs) return;
  const AnswerJson* content = member(logprobs, "content");
  if (content && content->is_array())
    read_chat_logprobs(*content, out.tokens);
  else
    read_old_logprobs(*logprobs, out.tokens);
}

// Returns false if the object has no choice.
bool add_object(CompletionApi api, const AnswerJson& object, const char* holder, CompletionAnswer& out) {
  const AnswerJson* cached = member(member(member(&object, "usage"), "prompt_tokens_details"), "cached_tokens");
  if (cached && cached->is_number_integer()) out.cached_tokens = cached->get<int64_t>();
  const AnswerJson* choices = member(&object, "choices");
  if (!choices || !choices->is_array() || choices->empty()) return false;
  add_choice(api, choices->front(), holder, out);
  return true;
}

}  // namespace

Result<CompletionAnswer> read_whole_answer(CompletionApi api, std::string_view body) {
  const AnswerJson json = parse_json(body, kMaxAnswerDepth);
  CompletionAnswer out;
  if (!json.is_object() || !add_object(api, json, "message", out))
    return Error::corrupt("the server's answer is not one of OpenAI's API: it has no \"choices\"");
  return out;
}

Result<CompletionAnswer> read_streamed_answer(CompletionApi api, std::string_view body) {
  CompletionAnswer out;
  bool any = false, ended = false;
  std::string error;
  EventStream events(body.size() + 1);
  MILLRACE_TRY_VOID(events.push(body, [&](std::string_view data) {
    if (data == "[DONE]") return !(ended = true);
    const AnswerJson json = parse_json(data, kMaxAnswerDepth);
    if (!json.is_object()) error = "an event is not a JSON object";
    if (member(&json, "error")) error = completion_error(data);
    if (error.empty()) any = add_object(api, json, "delta", out) || any;
    return error.empty();
  }));
  if (!error.empty()) return Error::internal("the streamed answer has an error: " + error);
  if (!any) return Error::corrupt("the server's answer is not a stream of events of OpenAI's API");
  if (!ended && out.finish.empty()) return Error::internal("the streamed answer ended early");
  return out;
}

Error status_error(int status, std::string_view body) {
  const std::string said = completion_error(body);
  const std::string text = fmt::format("HTTP {}{}{}", status, said.empty() ? "" : ": ", said);
  switch (status) {
    case 400:
    case 413:
    case 422: return Error::unsupported("the server refuses the request: " + text);
    case 404:
    case 405: return Error::unsupported("the server has no such model or API: " + text);
    case 401:
    case 403: return Error::user(fmt::format("the server refuses the key: {}; set --key or MILLRACE_API_KEY", text));
    case 429:
    case 503: return Error::resource(fmt::format("the server is busy: {}; use a smaller --batch", text));
    default: return Error::internal("the server failed: " + text);
  }
}

}  // namespace millrace
