// HttpCompletions: a server with OpenAI's API over HTTP or HTTPS, one thread and one connection per call in flight.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exactness/completion_server.h"
#include "server/http/http_post.h"

namespace millrace {

struct HttpCompletionsOptions {
  std::string url;                   // "http://localhost:8000", with or without /v1 at the end
  std::string key;                   // "": no Authorization
  std::string model;                 // "": the first one that the server lists
  std::optional<CompletionApi> api;  // none: completions; chat if the server does not have them
  std::chrono::milliseconds call_limit{120 * 1000};
};

class HttpCompletions : public CompletionServer {
 public:
  // Finds out which model, API and fields the server accepts, by a few short requests. notes() then says what it does
  // not accept. Errors: user (URL, key, model), network, unsupported (the server refuses every form of the request).
  static Result<std::unique_ptr<HttpCompletions>> connect(const HttpCompletionsOptions& options);

  std::vector<Result<CompletionAnswer>> answer(std::span<const CompletionCall> calls) override;
  bool can_skip_cache() const override { return style_.can_skip_cache; }

  // Waits until the server lists its models. `wanted` is called before each try, which ends after 2 s without data. If
  // it returns false, the wait ends. Errors: network (not within `limit`), cancelled.
  Result<void> wait_until_ready(std::chrono::milliseconds limit, const std::function<bool()>& wanted) const;
  const CallStyle& style() const { return style_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& address() const { return address_; }  // "http://localhost:8000"

 private:
  explicit HttpCompletions(HttpCompletionsOptions options) : options_(std::move(options)) {}
  Result<CompletionAnswer> answer_one(const CompletionCall& call) const;
  Result<std::vector<std::string>> list_models(double timeout_seconds) const;
  Result<void> choose_model();
  Result<void> choose_style();
  Result<void> try_fields(CompletionApi api);

  HttpCompletionsOptions options_;
  std::string address_;
  CallStyle style_;
  std::vector<std::string> models_, notes_;
};

}  // namespace millrace
