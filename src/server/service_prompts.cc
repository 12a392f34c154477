// The prompts of a request: from text or a conversation to tokens, their compression, and their limits.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "prompt/document_prompt.h"
#include "run/language_model.h"
#include "server/generation/conversation.h"
#include "server/generation/infill.h"
#include "server/generation/prompt_parts.h"
#include "server/generation/prompt_reads.h"
#include "server/generation/prompt_rows.h"
#include "server/generation/retrieved_documents.h"
#include "server/service.h"

namespace millrace {

// A request whose prompts are being compressed.
struct Service::WaitingPrompts {
  HttpRequest request;
  GenerationRequest params;
  WorkShare share;
  std::shared_ptr<std::atomic<bool>> unwanted = std::make_shared<std::atomic<bool>>(false);  // the client disconnected
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
};

int64_t Service::context_of(const GenerationRequest& params) {
  const int64_t context = params.served->context;
  return params.most_context > 0 ? std::min(params.most_context, context) : context;
}

std::optional<ApiError> Service::make_prompts(GenerationRequest& params) const {
  if (auto wrong = encode_prompts(params)) return wrong;
  return check_prompts(params);
}

std::optional<ApiError> Service::encode_prompts(GenerationRequest& params) const {
  const LanguageModel& model = *params.served->model;
  if (auto wrong = place_prompt_rows(model.parts().model->spec().width, params)) return wrong;
  if (params.retrieval)
    if (auto wrong = retrieve_documents(options_.indexes.get(), params)) return wrong;
  if (!params.documents.empty()) return encode_documents(params);
  if (!params.messages.is_null())
    if (auto wrong = make_conversation(model, params)) return wrong;
  if (params.infill)
    if (auto wrong = make_infill_prompts(model, context_of(params), params)) return wrong;
  for (AskedPrompt& prompt : params.prompts) {
    if (prompt.tokens.empty()) {
      auto tokens = model.encode(prompt.text, prompt.add_special);
      if (!tokens.ok()) return ApiError::from(tokens.error());
      prompt.tokens = std::move(*tokens);
    } else if (params.messages.is_null() && prompt.text.empty() && !prompt.rows) {
      prompt.text = model.decode(prompt.tokens);
    }
  }
  return std::nullopt;
}

namespace {

constexpr const char* kDocuments = "millrace.documents";

std::optional<ApiError> check_documents(const GenerationRequest& params) {
  const auto refuse = [](const char* why) { return ApiError::unsupported(kDocuments, why); };
  const bool text =
      !params.infill && std::ranges::all_of(params.prompts, [](const auto& prompt) { return prompt.tokens.empty(); });
  if (!text) return refuse("come before a prompt that is text or in a conversation, not before tokens");
  if (!params.context_tokens.empty()) return refuse("do not continue the tokens of another answer; omit context");
  if (!params.prompt_passes.empty()) return refuse("are not compressed; send them shortened");
  if (params.truncate_prompt != 0) return refuse("are not truncated; send fewer of them");
  if (params.echo) return refuse("are not echoed; omit echo");
  if (params.prompt_logprobs >= 0) return refuse("are not scored; omit prompt_logprobs");
  return std::nullopt;
}

// `within`: in a message.
std::optional<ApiError> document_tokens(const GenerationRequest& params, int64_t context, bool within,
                                        std::vector<std::vector<TokenId>>& documents) {
  const LanguageModel& model = *params.served->model;
  int64_t total = 0;
  for (const std::string& text : params.documents) {
    auto ids = within ? encode_within(model, text) : model.encode(text, false);
    if (!ids.ok()) return ApiError::from(ids.error());
    if (ids->empty()) return ApiError::bad(kDocuments, fmt::format("document {} is empty", documents.size()));
    total += std::ssize(*ids);
    if (total >= context)
      return ApiError{
          ApiErrorKind::too_long,
          fmt::format("the documents have {} tokens or more, which leaves no room for an answer in a context "
                      "of {}",
                      total, context),
          kDocuments};
    documents.push_back(std::move(*ids));
  }
  return std::nullopt;
}

}  // namespace

// The start token, the documents' tokens, then the prompt's, or in a conversation the documents at the beginning of the
// user's last message: a document's tokens do not depend on its place.
std::optional<ApiError> Service::encode_documents(GenerationRequest& params) const {
  if (auto wrong = check_documents(params)) return wrong;
  const LanguageModel& model = *params.served->model;
  const bool chat = !params.messages.is_null();
  std::vector<std::vector<TokenId>> documents;
  if (auto wrong = document_tokens(params, context_of(params), chat, documents)) return wrong;
  if (chat) {
    if (auto marked = mark_documents(params.messages); !marked.ok()) return ApiError::from(marked.error());
    if (auto wrong = make_conversation(model, params)) return wrong;
  }
  for (AskedPrompt& prompt : params.prompts) {
    if (prompt.text.empty()) return ApiError::bad(kDocuments, "a prompt must follow");
    DocumentPrompt made;
    if (chat) {
      auto marked = marked_prompt(model, prompt.text, documents);
      if (!marked.ok()) return ApiError::from(marked.error());
      made = std::move(*marked);
      prompt.text = shown_prompt(std::move(prompt.text), params.documents);
    } else {
      auto start = model.encode("", prompt.add_special), question = model.encode(prompt.text, false);
      if (!start.ok()) return ApiError::from(start.error());
      if (!question.ok()) return ApiError::from(question.error());
      made.tokens = std::move(*start);
      made.add_documents(documents);
      made.add(*question);
    }
    prompt.tokens = std::move(made.tokens);
    params.request.documents = std::move(made.documents);
  }
  return std::nullopt;
}

// Truncates prompts as requested, and checks that they fit the context.
std::optional<ApiError> Service::check_prompts(GenerationRequest& params) const {
  const int64_t context = context_of(params);
  for (AskedPrompt& prompt : params.prompts) {
    truncate_prompt(params, prompt, context);
    const auto count = static_cast<int64_t>(prompt.tokens.size());
    if (count == 0)
      return ApiError{ApiErrorKind::bad_request, "prompt: is empty, and this model adds no start token", "prompt"};
    if (count >= context) {
      ApiError error{ApiErrorKind::too_long,
                     fmt::format("the prompt has {} tokens, which leaves no room for an answer in a context of {}",
                                 count, context),
                     params.messages.is_null() ? "prompt" : "messages"};
      error.prompt_tokens = count;
      error.context = context;
      return error;
    }
    if (params.most_context > 0)
      params.request.max_tokens =
          std::min(params.request.max_tokens < 0 ? context : params.request.max_tokens, context - count);
  }
  return std::nullopt;
}

// In the background: compressing a prompt runs a model over it.
void Service::wait_for_prompts(const Endpoint& endpoint, GenerationRequest params, const HttpRequest& request,
                               const Exchange& exchange) {
  auto pipeline = PromptPipeline::create(params.prompt_passes);
  auto waiting = std::make_shared<WaitingPrompts>();
  PromptWorker::Work work{.share = share_of(request, params), .unwanted = waiting->unwanted};
  work.budget = prompt_budget(context_of(params), params.request.max_tokens);
  for (AskedPrompt& prompt : params.prompts) work.prompts.push_back({prompt.tokens, std::move(prompt.sources)});
  auto place = take_place(params);
  if (place.ok()) params.queue_place = work.place = *place;
  waiting->request = request;
  waiting->share = work.share;
  waiting->params = std::move(params);
  work.done = [this, &endpoint, waiting, exchange](Result<std::vector<CompressedPrompt>> compressed) {
    exchange.post([this, &endpoint, waiting, exchange, compressed = std::move(compressed)]() mutable {
      if (*waiting->unwanted) return;
      guarded(waiting->request, exchange,
              [&] { received_prompts(endpoint, *waiting, std::move(compressed), exchange); });
    });
  };
  exchange.on_disconnect([waiting] { *waiting->unwanted = true; });
  Result<void> added = !pipeline.ok() ? Result<void>(pipeline.error())
                       : place.ok()   ? Result<void>()
                                      : Result<void>(place.error());
  if (added.ok()) {
    work.pipeline = std::move(*pipeline);
    added = waiting->params.served->prompts->add(std::move(work));
  }
  if (added.ok()) return;
  const ApiError error = ApiError::from(added.error());
  exchange.end(refused(*endpoint.dialect, error, headers(request)), endpoint.dialect->refuse_in_stream(error));
}

void Service::received_prompts(const Endpoint& endpoint, WaitingPrompts& waiting,
                               Result<std::vector<CompressedPrompt>> compressed, const Exchange& exchange) {
  GenerationRequest& params = waiting.params;
  if (!compressed.ok()) {
    const ApiError error = reading_error(compressed.error(), waiting.share);
    return exchange.end(refused(*endpoint.dialect, error, headers(waiting.request)),
                        endpoint.dialect->refuse_in_stream(error));
  }
  take_compressed(params, std::move(*compressed));
  params.compressing_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - waiting.since).count();
  complete_answer(endpoint, std::move(params), waiting.request, exchange);
}

}  // namespace millrace
