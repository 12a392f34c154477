#include "compare/answer_prompts.h"

#include <chrono>

#include "compare/answers.h"
#include "prompt/chat_prompt.h"
#include "prompt/message_sources.h"
#include "prompt/recovery.h"

namespace millrace {
namespace {

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

}  // namespace

Result<DocumentPrompt> whole_prompt(const LanguageModel& model, const AnswerRequest& request) {
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

AnswerPrompts::AnswerPrompts(const CompareConfig& config, PromptPipeline pipeline)
    : config_(config), pipeline_(std::move(pipeline)), scores_(config.model, config.engine.threads) {}

Result<std::unique_ptr<AnswerPrompts>> AnswerPrompts::create(const CompareConfig& config) {
  MILLRACE_TRY(PromptPipeline pipeline, PromptPipeline::create(config.prompt_passes));
  auto out = std::unique_ptr<AnswerPrompts>(new AnswerPrompts(config, std::move(pipeline)));
  MILLRACE_TRY_VOID(out->scores_.open(out->pipeline_));
  return out;
}

Result<AnswerPrompts::Prompt> AnswerPrompts::prompt(const AnswerRequest& request) {
  const LanguageModel& model = *config_.model;
  if (pipeline_.empty()) {
    Prompt out;
    MILLRACE_TRY(out.shown, whole_prompt(model, request));
    return out;
  }
  if (request.messages.is_null()) {
    MILLRACE_TRY(auto tokens, model.encode(request.text, true, false));
    return prompt(std::move(tokens), request.max_tokens);
  }
  const nlohmann::ordered_json input = {{"messages", request.messages}};
  MILLRACE_TRY(const RenderedChat rendered, render_chat(model, input, true));
  MILLRACE_TRY(auto tokens, encode_chat(model, rendered.text));
  const auto sources = message_sources(model, {{"messages", rendered.messages}}, true, rendered.text, tokens);
  return compressed(std::move(tokens), sources, request.max_tokens);
}

Result<AnswerPrompts::Prompt> AnswerPrompts::prompt(std::vector<TokenId> tokens, int64_t answer_tokens) {
  return compressed(std::move(tokens), {}, answer_tokens);
}

Result<AnswerPrompts::Prompt> AnswerPrompts::compressed(std::vector<TokenId> tokens,
                                                        std::span<const PromptSource> sources, int64_t answer_tokens) {
  Prompt out;
  if (pipeline_.empty()) {
    out.shown.tokens = std::move(tokens);
    return out;
  }
  const auto began = std::chrono::steady_clock::now();
  MILLRACE_TRY(CompressedPrompt shorter,
               pipeline_.apply(config_.model->parts().tokenizer.get(), tokens, sources,
                               prompt_budget(compare_context(config_), answer_tokens), &scores_));
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  out.shown.tokens = std::move(shorter.tokens);
  out.original = std::move(tokens);
  return out;
}

std::string AnswerPrompts::recovered(const Prompt& prompt, const std::vector<TokenId>& answer, std::string text) const {
  if (!pipeline_.recovers() || prompt.original.empty()) return text;
  return config_.model->decode(recover_answer(prompt.original, prompt.shown.tokens, answer));
}

}  // namespace millrace
