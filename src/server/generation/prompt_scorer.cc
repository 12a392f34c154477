#include "server/generation/prompt_scorer.h"

#include <new>

#include "sampling/logprobs.h"
#include "server/generation/prompt_reads.h"

namespace millrace {
namespace {

class ScoreReader final : public PromptReader {
 public:
  ScoreReader(std::vector<TokenId> prompt, int64_t vocab, int64_t top)
      : prompt_(std::move(prompt)), vocab_(static_cast<size_t>(vocab)), top_(top), tokens_(prompt_.size()) {
    tokens_.front() = ChosenToken{prompt_.front()};
  }

  bool logits() const override { return true; }
  bool wants(int64_t position) const override { return position + 1 < std::ssize(prompt_); }
  void read(int64_t position, const float* row) override {
    const auto next = static_cast<size_t>(position + 1);
    Logprobs logprobs = compute_logprobs({row, vocab_}, prompt_[next], top_);
    tokens_[next] = {prompt_[next], logprobs.chosen.logprob, std::move(logprobs.top)};
  }

  std::vector<ChosenToken> take() { return std::move(tokens_); }

 private:
  const std::vector<TokenId> prompt_;
  const size_t vocab_;
  const int64_t top_;
  std::vector<ChosenToken> tokens_;  // each written by one thread at a time
};

}  // namespace

PromptScorer::PromptScorer(Engine& engine, int64_t vocab)
    : engine_(engine), vocab_(vocab), thread_("requests are waiting for their prompts to be scored") {}

PromptScorer::~PromptScorer() {
  stopping_ = true;
  thread_.stop();
}

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
    if (!done.ok() || piece + 1 >= job.work.prompts.size()) job.work.place.reset();
    if (!done.ok())
      job.work.done(done.error());
    else if (piece + 1 >= job.work.prompts.size())
      job.work.done(std::move(job.out));
    return done.ok();
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while scoring the prompt"));
    return false;
  } catch (const std::exception& error) {
    job.work.done(Error::internal(std::string("scoring the prompt failed: ") + error.what()));
    return false;
  }
}

Result<void> PromptScorer::score(Job& job, const std::vector<TokenId>& prompt) {
  const auto reader = std::make_shared<ScoreReader>(prompt, vocab_, job.work.top);
  if (prompt.size() > 1)
    MILLRACE_TRY_VOID(read_prompts(engine_, {{prompt, reader}},
                                   {job.work.share, job.work.place, *job.work.unwanted, stopping_, thread_}));
  job.out.push_back(reader->take());
  return {};
}

}  // namespace millrace
