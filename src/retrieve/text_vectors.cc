#include "retrieve/text_vectors.h"

#include <fmt/format.h>

#include <algorithm>

#include "evaluate/embedder.h"
#include "evaluate/vector_head.h"
#include "prompt/rank_prompt.h"
#include "prompt/task_prefixes.h"

namespace millrace {
namespace {

constexpr int64_t kMaxTextTokens = 8192;
constexpr int64_t kMaxDecoderTokens = 2048;  // a decoder's keys and values of the longest text take memory

class ModelTextVectors final : public TextVectors {
 public:
  static Result<std::unique_ptr<TextVectors>> create(std::shared_ptr<const LanguageModel> model, int threads) {
    const LanguageModel::Parts& parts = model->parts();
    if (!parts.tokenizer) return Error::unsupported(fmt::format("{} has no tokenizer", parts.files->path));
    Pooling pooling = Pooling::mean;
    if (states_pooling(*parts.files)) {
      MILLRACE_TRY(pooling, model_pooling(*parts.files));
    }
    if (pooling == Pooling::none)
      return Error::unsupported(
          fmt::format("{}: declares no vector of a whole text; choose an embedding model", parts.files->path));
    MILLRACE_TRY(VectorHead head, VectorHead::read(*parts.files, parts.model->spec().width));
    auto out = std::unique_ptr<ModelTextVectors>(new ModelTextVectors(model, pooling, std::move(head)));
    MILLRACE_TRY(const TaskPrefixes prefixes, TaskPrefixes::read(*parts.files));
    out->question_ = prefix_of(prefixes, {"query", "question"});
    out->document_ = prefix_of(prefixes, {"document", "passage"});
    const int64_t most = parts.model->spec().encoder ? kMaxTextTokens : kMaxDecoderTokens;
    const int64_t context = std::min(most, parts.model->context());
    MILLRACE_TRY(out->embedder_, Embedder::create(std::move(model), {.threads = threads, .context = context}));
    return std::unique_ptr<TextVectors>(std::move(out));
  }

  int64_t width() const override { return head_.width(); }

  Result<std::vector<std::vector<float>>> of_documents(std::span<const std::string> texts) override {
    return vectors(texts, document_);
  }

  Result<std::vector<float>> of_question(const std::string& text) override {
    MILLRACE_TRY(auto all, vectors(std::span(&text, 1), question_));
    return std::move(all.front());
  }

 private:
  ModelTextVectors(std::shared_ptr<const LanguageModel> model, Pooling pooling, VectorHead head)
      : model_(std::move(model)), pooling_(pooling), head_(std::move(head)) {}

  // Returns the prefix of the first of these tasks that the model declares, else its default one.
  static std::string prefix_of(const TaskPrefixes& prefixes, std::initializer_list<std::string_view> tasks) {
    for (const std::string_view task : tasks)
      if (auto found = prefixes.find(std::string(task)); found.ok()) return *found;
    auto found = prefixes.find(std::nullopt);
    return found.ok() ? *found : "";
  }

  Result<std::vector<std::vector<float>>> vectors(std::span<const std::string> texts, const std::string& prefix) {
    std::vector<std::vector<TokenId>> tokens;
    const auto most = static_cast<size_t>(embedder_->context());
    for (const std::string& text : texts) {
      MILLRACE_TRY(auto encoded, model_->encode(prefix + text, true, /*parse_special=*/false));
      if (encoded.empty()) return Error::user("a text has no tokens in the embedding model's tokenizer");
      if (encoded.size() > most) {  // an encoder's text ends with its end token
        const TokenId last = encoded.back();
        encoded.resize(most);
        if (model_->parts().model->spec().encoder) encoded.back() = last;
      }
      tokens.push_back(std::move(encoded));
    }
    std::vector<std::vector<float>> out(texts.size());
    MILLRACE_TRY_VOID(embedder_->run(tokens, pooling_, [&](size_t text, std::vector<float> values) -> Result<void> {
      head_.apply(values);
      normalize(values);
      out[text] = std::move(values);
      return {};
    }));
    return out;
  }

  const std::shared_ptr<const LanguageModel> model_;
  const Pooling pooling_;
  const VectorHead head_;
  std::string question_, document_;  // prefixes
  std::unique_ptr<Embedder> embedder_;
};

}  // namespace

Result<std::unique_ptr<TextVectors>> model_text_vectors(std::shared_ptr<const LanguageModel> model, int threads) {
  return ModelTextVectors::create(std::move(model), threads);
}

}  // namespace millrace
