#include "server/generation/prompt_scorer.h"

#include <new>

#include "evaluate/scorer.h"
#include "kv/kv_formats.h"
#include "sampling/logprobs.h"

namespace millrace {

PromptScorer::PromptScorer(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context)
    : model_(std::move(model)),
      engine_(engine),
      context_(context),
      thread_("requests are waiting for their prompts to be scored") {}

PromptScorer::~PromptScorer() { thread_.stop(); }

struct PromptScorer::Job {
  Work work;
  std::vector<std::vector<ChosenToken>> out;
};

Result<void> PromptScorer::add(Work work) {
  FairWorker::Job fair{.share = work.share, .pieces = {}, .unwanted = work.unwanted, .run = nullptr};
  for (const auto& prompt : work.prompts) fair.pieces.push_back(static_cast<int64_t>(prompt.size()));
  if (fair.pieces.empty()) fair.pieces.push_back(0);
  const auto job = std::make_shared<Job>(Job{std::move(work), {}});
  fair.run = [this, job](size_t piece) { return run(*job, piece); };
  return thread_.add(std::move(fair));
}

bool PromptScorer::run(Job& job, size_t piece) {
  try {
    const auto done = piece < job.work.prompts.size() ? score(job, job.work.prompts[piece]) : Result<void>();
    if (!done.ok())
      job.work.done(done.error());
    else if (piece + 1 >= job.work.prompts.size())
      job.work.done(std::move(job.out));
    return done.ok();
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while scoring the prompt"));
    return false;
  }
}

Result<void> PromptScorer::score(Job& job, const std::vector<TokenId>& prompt) {
  if (!scorer_) {
    ScorerOptions options{.threads = engine_.threads,
                          .context = std::max<int64_t>(2, context_),
                          .batch_tokens = engine_.batch_tokens,
                          .kv_format = kv_format_of_one_group(engine_.kv_format)};
    MILLRACE_TRY(scorer_, Scorer::create(model_, options));
  }
  auto& tokens = job.out.emplace_back(1, ChosenToken{prompt.front()});
  if (prompt.size() < 2) return {};
  const ScoreWindow window{0, static_cast<int64_t>(prompt.size()), 1};
  return scorer_->run(prompt, std::span(&window, 1), -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
    if (*job.work.unwanted) return Error::cancelled("the client has left");
    for (const ScoredRow& row : rows) {
      Logprobs logprobs =
          compute_logprobs({row.logits, static_cast<size_t>(scorer_->vocab())}, row.target, job.work.top);
      tokens.push_back({row.target, logprobs.chosen.logprob, std::move(logprobs.top)});
    }
    return {};
  });
}

}  // namespace millrace
