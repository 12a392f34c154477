#include "evaluate/text_embedder.h"

#include <fmt/format.h>

#include <algorithm>

#include "prompt/rank_prompt.h"

namespace millrace {

std::vector<ScoreWindow> state_windows(int64_t tokens, int64_t context) {
  std::vector<ScoreWindow> out = document_windows(tokens, context);
  if (tokens == 1) out = {{.begin = 0, .count = 1, .first_scored = 0}};
  if (!out.empty()) out.front().first_scored = 0;
  return out;
}

Result<std::unique_ptr<TextEmbedder>> TextEmbedder::create(std::shared_ptr<const LanguageModel> model, int threads) {
  const LanguageModel::Parts& parts = model->parts();
  if (!parts.tokenizer) return Error::unsupported(fmt::format("{} has no tokenizer", parts.files->path));
  Pooling pooling = Pooling::mean;
  if (states_pooling(*parts.files)) {
    MILLRACE_TRY(pooling, model_pooling(*parts.files));
  }
  const int64_t context = std::min(kMaxTokens, parts.model->context());
  MILLRACE_TRY(VectorHead head, VectorHead::read(*parts.files, parts.model->spec().width));
  auto out = std::unique_ptr<TextEmbedder>(new TextEmbedder(model, pooling, std::move(head)));
  MILLRACE_TRY(out->embedder_, Embedder::create(std::move(model), {.threads = threads, .context = context}));
  return out;
}

Result<std::vector<std::vector<float>>> TextEmbedder::of_texts(std::span<const std::string> texts) {
  std::vector<std::vector<TokenId>> tokens;
  for (const std::string& text : texts) {
    MILLRACE_TRY(tokens.emplace_back(), model_->encode(text));
    if (tokens.back().empty()) return Error::user("prompt: model: a text has no tokens in its tokenizer");
  }
  return of_tokens(tokens);
}

Result<std::vector<std::vector<float>>> TextEmbedder::of_tokens(std::span<const std::vector<TokenId>> texts) {
  std::vector<std::vector<TokenId>> cut(texts.begin(), texts.end());
  for (auto& text : cut) text.resize(std::min(text.size(), static_cast<size_t>(embedder_->context())));
  std::vector<std::vector<float>> out(texts.size());
  MILLRACE_TRY_VOID(embedder_->run(cut, pooling_, [&](size_t text, std::vector<float> values) -> Result<void> {
    head_.apply(values);
    normalize(values);
    out[text] = std::move(values);
    return {};
  }));
  return out;
}

Result<void> TextEmbedder::states(std::span<const TokenId> tokens, const PromptScores::StateSink& sink,
                                  const std::function<Result<void>()>& check) {
  const auto width = static_cast<size_t>(embedder_->width());
  for (const ScoreWindow& window : state_windows(std::ssize(tokens), embedder_->context())) {
    const auto part = tokens.subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.count));
    const std::vector<TokenId> text(part.begin(), part.end());
    const auto take = [&](size_t, const std::vector<float>& values) -> Result<void> {
      for (auto i = static_cast<size_t>(window.first_scored); i < text.size(); ++i)
        MILLRACE_TRY_VOID(sink(static_cast<size_t>(window.begin) + i, std::span(values).subspan(i * width, width)));
      return {};
    };
    MILLRACE_TRY_VOID(embedder_->run(std::span(&text, 1), Pooling::none, take));
    if (check) MILLRACE_TRY_VOID(check());
  }
  return {};
}

}  // namespace millrace
