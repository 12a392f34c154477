#include "server/prompt_scorer.h"

#include <new>

#include "engine/scorer.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

constexpr size_t kMostWaiting = 64;

}  // namespace

PromptScorer::PromptScorer(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context)
    : model_(std::move(model)), engine_(engine), context_(context), thread_(kMostWaiting) {}

PromptScorer::~PromptScorer() { thread_.stop(); }

Result<void> PromptScorer::add(Work work) {
  const auto shared = std::make_shared<Work>(std::move(work));
  if (!thread_.add([this, shared] { run(*shared); })) return Error::resource("queue: too many prompts wait to be scored; try again later");
  return {};
}

void PromptScorer::run(const Work& work) {
  if (*work.unwanted) return;
  try {
    work.done(score(work));
  } catch (const std::bad_alloc&) {
    work.done(Error::resource("out of memory while scoring the prompt"));
  }
}

Result<std::vector<std::vector<ChosenToken>>> PromptScorer::score(const Work& work) {
  if (!scorer_) {
    ScorerOptions options{.threads = engine_.threads, .context = std::max<int64_t>(2, context_), .batch_tokens = engine_.batch_tokens, .kv_format = engine_.kv_format};
    MILLRACE_TRY(scorer_, Scorer::create(model_, options));
  }
  std::vector<std::vector<ChosenToken>> out;
  for (const std::vector<TokenId>& prompt : work.prompts) {
    auto& tokens = out.emplace_back(1, ChosenToken{prompt.front()});
    if (prompt.size() < 2) continue;
    const ScoreWindow window{0, static_cast<int64_t>(prompt.size()), 1};
    MILLRACE_TRY_VOID(scorer_->run(prompt, std::span(&window, 1), -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
      if (*work.unwanted) return Error::cancelled("nobody waits for it");
      for (const ScoredRow& row : rows) {
        Logprobs logprobs = compute_logprobs({row.logits, static_cast<size_t>(scorer_->vocab())}, row.target, work.top);
        tokens.push_back({row.target, logprobs.chosen.logprob, std::move(logprobs.top)});
      }
      return {};
    }));
  }
  return out;
}

}  // namespace millrace
