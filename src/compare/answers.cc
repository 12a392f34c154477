#include "compare/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "run/chat_prompt.h"
#include "run/document_prompt.h"

namespace millrace {
namespace {

// The first configuration of each model: prompts are the same tokens in the others.
std::vector<const CompareConfig*> with_own_model(std::span<const CompareConfig> configs) {
  std::vector<const CompareConfig*> out;
  for (const CompareConfig& config : configs)
    if (config.model && std::ranges::none_of(out, [&](const auto* other) { return other->model == config.model; }))
      out.push_back(&config);
  return out;
}

// The last message without its documents, which are put where it begins.
Result<DocumentPrompt> prompt_of_documents(const LanguageModel& model, const AnswerRequest& request) {
  auto messages = request.messages;
  std::string content = messages.back()["content"].get<std::string>();
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& document : request.documents) {
    if (!content.starts_with(document)) return Error::internal("a message does not begin with its documents");
    content.erase(0, document.size());
    MILLRACE_TRY(documents.emplace_back(), encode_within(model, document));
  }
  messages.back()["content"] = content;
  MILLRACE_TRY_VOID(mark_documents(messages));
  MILLRACE_TRY(const std::string text, chat_text(model, messages, true));
  return marked_prompt(model, text, documents);
}

Result<DocumentPrompt> prompt_of(const LanguageModel& model, const AnswerRequest& request) {
  if (!request.documents.empty()) return prompt_of_documents(model, request);
  DocumentPrompt prompt;
  if (request.messages.is_null()) {
    MILLRACE_TRY(prompt.tokens, model.encode(request.text, true, false));
    return prompt;
  }
  MILLRACE_TRY(const std::string text, chat_text(model, request.messages, true));
  MILLRACE_TRY(prompt.tokens, encode_chat(model, text));
  return prompt;
}

Result<Request> engine_request(const CompareConfig& config, const AnswerRequest& from) {
  Request request;
  MILLRACE_TRY(DocumentPrompt prompt, prompt_of(*config.model, from));
  request.prompt = std::move(prompt.tokens);
  request.documents = std::move(prompt.documents);
  request.sampling = config.sampling;
  request.max_tokens = from.max_tokens;
  request.stop = from.stop;
  return request;
}

// Errors: of the stream, cancelled.
Result<GeneratedAnswer> whole_answer(Stream& stream, const SuiteWanted& wanted) {
  GeneratedAnswer answer;
  for (bool timed_out = false;;) {
    auto event = stream.next(std::chrono::milliseconds(100), &timed_out);
    if (!wanted()) return Error::cancelled("interrupted");
    if (!event && timed_out) continue;
    if (!event) return Error::internal("an answer ended without its last event");
    answer.text += event->text;
    if (event->token >= 0 && !event->end_token) answer.tokens.push_back(event->token);
    if (event->finish == FinishReason::error) return event->error;
    if (!event->last) continue;
    answer.timings = event->timings;
    return answer;
  }
}

}  // namespace

int64_t model_passes(const RequestTimings& timings, bool drafts_with_model) {
  // Every step with a draft has reached the draft's first position.
  const int64_t drafts = drafts_with_model && !timings.drafted_at.empty() ? timings.drafted_at[0] : 0;
  return timings.target_passes + drafts;
}

nlohmann::ordered_json user_message(const std::string& text) {
  auto out = nlohmann::ordered_json::array();
  out.push_back(nlohmann::ordered_json::object({{"role", "user"}, {"content", text}}));
  return out;
}

Result<std::vector<size_t>> fitting_requests(std::span<const CompareConfig> configs,
                                             std::span<const AnswerRequest> requests, int64_t& longest) {
  longest = 1;
  std::vector<size_t> out;
  int64_t context = INT64_MAX;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  const auto models = with_own_model(configs);
  for (size_t i = 0; i < requests.size(); ++i) {
    int64_t most = 1;
    bool fits = true;
    for (const CompareConfig* const config : models) {
      MILLRACE_TRY(const auto prompt, prompt_of(*config->model, requests[i]));
      const int64_t tokens = std::ssize(prompt.tokens) + requests[i].max_tokens;
      most = std::max(most, tokens);
      fits &= !prompt.tokens.empty() && tokens <= context;
    }
    if (!fits) continue;
    longest = std::max(longest, most);
    out.push_back(i);
  }
  return out;
}

Result<GeneratedAnswer> answer_alone(Engine& engine, Request request, const SuiteWanted& wanted) {
  MILLRACE_TRY(auto stream, engine.submit(std::move(request)));
  return whole_answer(*stream, wanted);
}

Result<std::vector<GeneratedAnswer>> AnswerEngines::answer_externally(size_t config,
                                                                      std::span<const AnswerRequest> requests,
                                                                      const SuiteWanted& wanted) {
  if (!servers_[config]) {
    MILLRACE_TRY(servers_[config], configs_[config].external->serve(longest_, wanted));
  }
  std::vector<GeneratedAnswer> out(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const AnswerRequest& request = requests[i];
    const ExternalQuestion question{request.messages.is_null() ? "" : request.messages.dump(), request.text,
                                    request.max_tokens, request.stop};
    MILLRACE_TRY(out[i].text, servers_[config]->answer(question, wanted));
  }
  return out;
}

Result<std::vector<GeneratedAnswer>> AnswerEngines::answer(size_t config, std::span<const AnswerRequest> requests,
                                                           const SuiteWanted& wanted) {
  const CompareConfig& of = configs_[config];
  if (!of.model) return answer_externally(config, requests, wanted);
  if (!engines_[config]) {
    MILLRACE_TRY(engines_[config], make_compare_engine(of, streams_, longest_));
  }
  std::vector<std::unique_ptr<Stream>> streams;
  for (const AnswerRequest& request : requests) {
    MILLRACE_TRY(Request made, engine_request(of, request));
    MILLRACE_TRY(auto stream, engines_[config]->submit(std::move(made)));
    streams.push_back(std::move(stream));
  }
  std::vector<GeneratedAnswer> out;
  for (auto& stream : streams) {
    MILLRACE_TRY(GeneratedAnswer answer, whole_answer(*stream, wanted));
    out.push_back(std::move(answer));
    stream.reset();
  }
  return out;
}

}  // namespace millrace
