#include "server/generation/prompt_worker.h"

#include <algorithm>
#include <new>

namespace millrace {

struct PromptWorker::Job {
  Work work;
  std::vector<CompressedPrompt> out;
};

PromptWorker::PromptWorker(std::shared_ptr<const LanguageModel> model, std::vector<std::string> passes, int threads)
    : model_(std::move(model)),
      passes_(std::move(passes)),
      scores_(model_, threads),
      thread_("requests are waiting for their prompts to be compressed") {}

PromptWorker::~PromptWorker() { thread_.stop(); }

Result<std::unique_ptr<PromptWorker>> PromptWorker::create(std::shared_ptr<const LanguageModel> model,
                                                           std::vector<std::string> passes, int threads) {
  MILLRACE_TRY(const PromptPipeline pipeline, PromptPipeline::create(passes));
  auto worker = std::unique_ptr<PromptWorker>(new PromptWorker(std::move(model), std::move(passes), threads));
  MILLRACE_TRY_VOID(worker->scores_.open(pipeline.models()));
  return worker;
}

Result<void> PromptWorker::add(Work work) {
  FairWorker::Job fair{.share = work.share, .pieces = {}, .unwanted = work.unwanted, .run = nullptr};
  for (const Prompt& prompt : work.prompts) fair.pieces.push_back(std::max<int64_t>(1, std::ssize(prompt.tokens)));
  const auto job = std::make_shared<Job>(Job{std::move(work), {}});
  fair.run = [this, job](size_t piece) { return run(*job, piece); };
  return thread_.add(std::move(fair));
}

bool PromptWorker::run(Job& job, size_t piece) {
  try {
    const Prompt& prompt = job.work.prompts[piece];
    auto compressed = job.work.pipeline.apply(model_->parts().tokenizer.get(), prompt.tokens, prompt.fixed,
                                              job.work.budget, &scores_);
    if (!compressed.ok()) {
      job.work.done(compressed.error());
      return false;
    }
    job.out.push_back(std::move(*compressed));
    if (piece + 1 == job.work.prompts.size()) job.work.done(std::move(job.out));
    return true;
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while compressing the prompt"));
    return false;
  }
}

}  // namespace millrace
