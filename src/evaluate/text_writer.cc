#include "evaluate/text_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/kv_formats.h"
#include "models/background_packer.h"
#include "prompt/chat_prompt.h"

namespace millrace {
namespace {

constexpr int64_t kWriterBlockTokens = 16;
constexpr int64_t kWriterBatch = 256;  // tokens of a forward pass

}  // namespace

Result<std::unique_ptr<TextWriter>> TextWriter::create(std::shared_ptr<const LanguageModel> model, int threads) {
  const auto& parts = model->parts();
  if (!parts.tokenizer) return Error::unsupported(fmt::format("{} has no tokenizer", parts.files->path));
  if (parts.model->spec().encoder)
    return Error::unsupported(fmt::format("{} is an encoder, which writes no text", parts.files->path));
  MILLRACE_TRY(const KvFormats formats, find_kv_formats("f16", parts.kernels));
  auto writer = std::unique_ptr<TextWriter>(new TextWriter());
  writer->context_ = std::min(kMaxTokens, parts.model->context());
  KvLayout layout = formats.layout(kWriterBlockTokens, parts.model->kv_layers());
  MILLRACE_TRY_VOID(formats.set_window_formats(layout));
  const int64_t blocks = (writer->context_ + layout.block_tokens - 1) / layout.block_tokens;
  MILLRACE_TRY(writer->runner_, ModelRunner::create_charged(*parts.model, parts.kernels,
                                                            {.threads = parts.threads->get(threads),
                                                             .layout = std::move(layout),
                                                             .blocks = blocks,
                                                             .limits = {kWriterBatch, 1, writer->context_},
                                                             .streams = 1},
                                                            parts.accounts, "raise the budget"));
  for (int64_t i = 0; i < blocks; ++i) {
    MILLRACE_TRY(const BlockId block, writer->runner_->kv().allocate());
    writer->blocks_.push_back(block);
  }
  if (BackgroundPacker* packing = parts.model->packing()) MILLRACE_TRY_VOID(packing->finish());
  writer->model_ = std::move(model);
  return writer;
}

// Reads tokens that follow `position` others, and returns the likeliest next one, the lowest of equal ones.
Result<TokenId> TextWriter::next_after(std::span<const TokenId> tokens, int64_t position) {
  for (size_t at = 0; at < tokens.size();) {
    const size_t end = std::min(tokens.size(), at + static_cast<size_t>(kWriterBatch));
    runner_->start();
    runner_->begin(blocks_, position + static_cast<int64_t>(at));
    for (; at < end; ++at) runner_->add(tokens[at], position + static_cast<int64_t>(at), at + 1 == tokens.size());
    runner_->forward();
    MILLRACE_TRY_VOID(runner_->take_failure());
  }
  const std::span logits(runner_->logits(), static_cast<size_t>(model_->info().vocab));
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

Result<std::string> TextWriter::answer(const std::string& message, int64_t max_tokens,
                                       const std::function<Result<void>()>& check) {
  auto messages = nlohmann::ordered_json::array();
  messages.push_back({{"role", "user"}, {"content", message}});
  MILLRACE_TRY(const std::string text, chat_text(*model_, messages, true));
  MILLRACE_TRY(const std::vector<TokenId> prompt, encode_chat(*model_, text));
  if (prompt.empty() || std::ssize(prompt) + max_tokens > context_)
    return Error::user(
        fmt::format("prompt: model: the text has {} tokens, and its summary up to {}; {} reads at most {}",
                    prompt.size(), max_tokens, model_->parts().files->path, context_));
  const Tokenizer& tokenizer = *model_->parts().tokenizer;
  std::vector<TokenId> written;
  std::vector<TokenId> next = prompt;
  int64_t position = 0;
  while (std::ssize(written) < max_tokens) {
    if (check) MILLRACE_TRY_VOID(check());
    MILLRACE_TRY(const TokenId token, next_after(next, position));
    if (tokenizer.is_eog(token)) break;
    position += std::ssize(next);
    next = {token};
    written.push_back(token);
  }
  return model_->decode(written);
}

}  // namespace millrace
