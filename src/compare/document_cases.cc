#include "compare/document_cases.h"

#include "compare/answers.h"
#include "evaluate/divergence.h"
#include "run/language_model.h"

namespace millrace {
namespace {

class ScoredRows final : public PromptReader {
 public:
  ScoredRows(const DocumentCase& one, int64_t vocab)
      : first_(std::ssize(one.prompt) - one.scored - 1),
        vocab_(vocab),
        log_probs_(static_cast<size_t>(one.scored * vocab)) {}

  bool logits() const override { return true; }
  bool wants(int64_t position) const override {
    return position >= first_ && (position - first_) * vocab_ < std::ssize(log_probs_);
  }
  void read(int64_t position, const float* row) override {
    log_softmax(row, vocab_, log_probs_.data() + (position - first_) * vocab_);
  }
  std::vector<float> take() { return std::move(log_probs_); }

 private:
  int64_t first_, vocab_;
  std::vector<float> log_probs_;
};

}  // namespace

std::vector<DocumentCase> cut_documents(const LanguageModel& model, std::span<const TokenId> tokens,
                                        const DocumentCut& cut, int64_t most) {
  const TokenizerSpec& spec = model.parts().tokenizer->spec();
  const bool starts = spec.add_bos && spec.bos && !tokens.empty() && tokens.front() == *spec.bos;
  if (starts) tokens = tokens.subspan(1);
  const auto size = static_cast<size_t>(cut.tokens());
  std::vector<DocumentCase> out;
  for (; tokens.size() >= size && std::ssize(out) < most; tokens = tokens.subspan(size)) {
    DocumentCase one{.scored = cut.scored};
    if (starts) one.prompt.push_back(*spec.bos);
    const int64_t first = std::ssize(one.prompt);
    for (int64_t i = 0; i < cut.documents; ++i)
      one.documents.push_back({first + i * cut.size, first + (i + 1) * cut.size});
    one.prompt.insert(one.prompt.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(size));
    out.push_back(std::move(one));
  }
  return out;
}

Result<std::vector<float>> predict_behind(Engine& engine, const DocumentCase& one, const std::string& context,
                                          int64_t vocab, const SuiteWanted& wanted) {
  const auto reader = std::make_shared<ScoredRows>(one, vocab);
  Request request;
  request.prompt = one.prompt;
  request.documents = one.documents;
  request.document_context = context;
  request.reader = reader;
  request.max_tokens = 0;
  request.sampling.temperature = 0;
  MILLRACE_TRY_VOID(answer_alone(engine, std::move(request), wanted));
  return reader->take();
}

DocumentScore score_behind(const DocumentCase& one, std::span<const float> base, std::span<const float> own) {
  const int64_t vocab = std::ssize(own) / one.scored;
  DocumentScore sum;
  for (int64_t i = 0; i < one.scored; ++i) {
    const TokenId target = one.prompt[one.prompt.size() - static_cast<size_t>(one.scored - i)];
    const TokenDivergence token = compare_rows(base.data() + i * vocab, own.data() + i * vocab, vocab, target);
    sum.nll -= static_cast<double>(own[static_cast<size_t>(i * vocab + target)]);
    sum.kl += token.kl;
    sum.same_top += token.same_top;
  }
  const auto n = static_cast<double>(one.scored);
  return {sum.nll / n, sum.kl / n, sum.same_top / n};
}

}  // namespace millrace
