#include "exactness/http_completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "base/json_text.h"
#include "base/network_error.h"
#include "base/start_thread.h"
#include "hub/http_get.h"

namespace millrace {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{16} << 20;
constexpr size_t kMaxListedModels = 8;  // in an error
constexpr int64_t kMaxListDepth = 32;
constexpr auto kReadyPause = std::chrono::milliseconds(300);
constexpr double kListSeconds = 30;
constexpr double kReadySeconds = 2;  // for one list of models of a server that restarts

}  // namespace

Result<std::unique_ptr<HttpCompletions>> HttpCompletions::connect(const HttpCompletionsOptions& options) {
  std::unique_ptr<HttpCompletions> server(new HttpCompletions(options));
  std::string& address = server->address_ = options.url;
  if (address.ends_with("/v1")) address.resize(address.size() - 3);
  MILLRACE_TRY_VOID(PostTarget::parse("--url", address, "/"));
  MILLRACE_TRY_VOID(server->choose_model());
  MILLRACE_TRY_VOID(server->choose_style());
  return server;
}

Result<CompletionAnswer> HttpCompletions::answer_one(const CompletionCall& call) const {
  MILLRACE_TRY(const PostTarget target, PostTarget::parse("--url", address_ + completion_path(style_.api), ""));
  HttpHeaders headers;
  if (!options_.key.empty()) headers.emplace_back("Authorization", "Bearer " + options_.key);
  MILLRACE_TRY(const PostReply reply,
               http_post(target, headers, call_body(style_, call), options_.call_limit, kMaxAnswerBytes));
  if (reply.status != 200) return status_error(reply.status, reply.body);
  return call.stream ? read_streamed_answer(style_.api, reply.body) : read_whole_answer(style_.api, reply.body);
}

std::vector<Result<CompletionAnswer>> HttpCompletions::answer(std::span<const CompletionCall> calls) {
  std::vector<Result<CompletionAnswer>> answers(calls.size(), Error::internal("not sent"));
  const auto start = std::chrono::steady_clock::now();
  const auto send = [&](size_t i) {
    std::this_thread::sleep_until(start + calls[i].delay);
    answers[i] = answer_one(calls[i]);
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size() && calls.size() > 1; ++i) {
    auto thread = start_thread("request", [&send, i] { send(i); });
    if (thread.ok())
      threads.push_back(std::move(*thread));
    else
      answers[i] = thread.error();
  }
  if (calls.size() == 1) send(0);
  for (std::thread& thread : threads) thread.join();
  return answers;
}

Result<std::vector<std::string>> HttpCompletions::list_models(double timeout_seconds) const {
  MILLRACE_TRY(const HubUrl url, parse_hub_url(address_ + "/v1/models"));
  std::string body;
  HttpGet get;
  get.bearer = options_.key;
  get.timeout_seconds = timeout_seconds;
  get.body = [&](const HttpAnswer&, std::string_view bytes) {
    body += bytes;
    return body.size() <= kMaxAnswerBytes;
  };
  MILLRACE_TRY(const HttpAnswer answer, http_get(url, get));
  std::vector<std::string> names;
  if (answer.status == 404 || answer.status == 405) return names;
  if (answer.status != 200) return status_error(answer.status, body);
  const auto json = parse_json(body, kMaxListDepth);
  if (!json.is_object() || !json.contains("data") || !json["data"].is_array()) return names;
  for (const auto& model : json["data"])
    if (model.is_object() && model.contains("id") && model["id"].is_string())
      names.push_back(model["id"].get<std::string>());
  return names;
}

// A server may lack the list of models, or accept other forms of their names.
Result<void> HttpCompletions::choose_model() {
  MILLRACE_TRY(models_, list_models(kListSeconds));
  style_.model = !options_.model.empty() ? options_.model : models_.empty() ? "" : models_.front();
  if (options_.model.empty() && models_.size() > 1)
    notes_.push_back(fmt::format("the server has {} models; this is about the first one, {}; --model chooses another",
                                 models_.size(), style_.model));
  return {};
}

Result<void> HttpCompletions::choose_style() {
  auto tried = try_fields(options_.api.value_or(CompletionApi::completions));
  if (tried.ok() || tried.error().kind != ErrorKind::unsupported) return tried;
  if (!options_.api && try_fields(CompletionApi::chat).ok()) {
    notes_.push_back("the server has no /v1/completions for this model: requests are chats of one message");
    return {};
  }
  if (models_.empty() || std::ranges::find(models_, style_.model) != models_.end()) return tried;
  const auto end = models_.begin() + static_cast<std::ptrdiff_t>(std::min(models_.size(), kMaxListedModels));
  return Error::user(fmt::format("--model {}: {}; the server lists {}", style_.model, tried.error().message,
                                 fmt::join(models_.begin(), end, ", ")));
}

// Leaves out the fields that are not in every server, one after the other, until the server accepts the request.
Result<void> HttpCompletions::try_fields(CompletionApi api) {
  style_.api = api;
  CompletionCall call;
  call.prompt = "Hello";
  call.max_tokens = 2;
  call.uncached = true;
  std::optional<Error> first;
  for (const bool logprobs : {true, false}) {
    for (const bool skips_cache : {true, false}) {
      style_.top_logprobs = logprobs ? 3 : -1;
      style_.can_skip_cache = skips_cache;
      auto answer = answer_one(call);
      if (!answer.ok() && !first) first = answer.error();
      if (!answer.ok() && answer.error().kind != ErrorKind::unsupported) return answer.error();
      if (!answer.ok()) continue;
      if (!skips_cache)
        notes_.push_back("the server refuses cache_prompt and cache_salt: there is no column `uncached`");
      if (answer->tokens.empty())
        notes_.push_back("the server returns no log-probabilities: only text and finish reason are compared");
      return {};
    }
  }
  return *first;
}

Result<void> HttpCompletions::wait_until_ready(std::chrono::milliseconds limit,
                                               const std::function<bool()>& wanted) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    if (!wanted()) return Error::cancelled("interrupted");
    const auto listed = list_models(kReadySeconds);
    if (listed.ok()) return {};
    if (std::chrono::steady_clock::now() >= until)
      return network_error(fmt::format("{}: not ready {} s after the restart: {}", address_, limit.count() / 1000,
                                       listed.error().message));
    std::this_thread::sleep_for(kReadyPause);
  }
}

}  // namespace millrace
