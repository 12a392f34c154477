#include "server/generation/prompt_worker.h"

#include <algorithm>
#include <new>

#include "sampling/logprobs.h"
#include "server/generation/prompt_reads.h"

namespace millrace {
namespace {

class WindowReader final : public PromptReader {
 public:
  WindowReader(std::span<const TokenId> window, int64_t first_scored, int64_t vocab)
      : window_(window.begin(), window.end()),
        first_(first_scored),
        vocab_(static_cast<size_t>(vocab)),
        scores_(window.size() - static_cast<size_t>(first_scored)) {}

  bool logits() const override { return true; }
  bool wants(int64_t position) const override { return position + 1 >= first_ && position + 1 < std::ssize(window_); }
  void read(int64_t position, const float* row) override {
    const TokenId target = window_[static_cast<size_t>(position + 1)];
    scores_[static_cast<size_t>(position + 1 - first_)] = -compute_logprobs({row, vocab_}, target, 0).chosen.logprob;
  }

  const std::vector<float>& scores() const { return scores_; }

 private:
  const std::vector<TokenId> window_;
  const int64_t first_;
  const size_t vocab_;
  std::vector<float> scores_;
};

// Averages the final hidden states of a text, in the order of its tokens.
class MeanReader final : public PromptReader {
 public:
  MeanReader(size_t tokens, int64_t width) : tokens_(tokens), sum_(static_cast<size_t>(width)) {}

  bool logits() const override { return false; }
  bool wants(int64_t) const override { return true; }
  void read(int64_t position, const float* row) override {
    if (position < next_) return;  // a preempted request brings its rows again
    next_ = position + 1;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<double>(row[i]);
  }

  std::vector<float> mean() const {
    std::vector<float> out;
    for (const double sum : sum_) out.push_back(static_cast<float>(sum / static_cast<double>(tokens_)));
    return out;
  }

 private:
  const size_t tokens_;
  int64_t next_ = 0;
  std::vector<double> sum_;
};

// Holds the final hidden states of a window's tokens from `first` on.
class StateReader final : public PromptReader {
 public:
  StateReader(int64_t first, int64_t count, int64_t width)
      : first_(first), width_(static_cast<size_t>(width)), rows_(static_cast<size_t>(count - first) * width_) {}

  bool logits() const override { return false; }
  bool wants(int64_t position) const override { return position >= first_; }
  void read(int64_t position, const float* row) override {
    std::copy_n(row, width_, rows_.data() + static_cast<size_t>(position - first_) * width_);
  }

  std::span<const float> row(size_t i) const { return std::span(rows_).subspan(i * width_, width_); }

 private:
  const int64_t first_;
  const size_t width_;
  std::vector<float> rows_;  // [count - first, width]
};

}  // namespace

struct PromptWorker::Job {
  Work work;
  std::vector<CompressedPrompt> out;
};

PromptWorker::PromptWorker(std::shared_ptr<const LanguageModel> model, std::vector<std::string> passes, int threads)
    : model_(std::move(model)),
      passes_(std::move(passes)),
      scores_(model_, threads),
      thread_("requests are waiting for their prompts to be compressed") {
  scores_.check_with([this] { return check(); });
}

PromptWorker::~PromptWorker() { stop(); }

void PromptWorker::use_engine(Engine& engine) {
  const auto own = [this, &engine](std::span<const TokenId> tokens, std::span<const ScoreWindow> windows) {
    return score(engine, tokens, windows);
  };
  scores_.score_with(own, engine.longest_kept());  // a prompt that is read keeps all its tokens
  scores_.embed_with([this, &engine](std::span<const std::vector<TokenId>> texts) { return embed(engine, texts); });
  const auto states = [this, &engine](std::span<const TokenId> tokens, std::span<const ScoreWindow> windows,
                                      const PromptScores::StateSink& sink) {
    return read_states(engine, tokens, windows, sink);
  };
  scores_.read_states_with(states, engine.longest_kept());
}

// Between passes of a scorer, which ends where the engine would end a request.
Result<void> PromptWorker::check() const {
  if (!current_) return {};
  if (*current_->unwanted) return Error::cancelled("the client has left");
  if (stopping_) return Error::cancelled("the server is shutting down");
  if (current_->share.late()) return Error::cancelled("timeout: the request timed out");
  return {};
}

Result<std::vector<float>> PromptWorker::score(Engine& engine, std::span<const TokenId> tokens,
                                               std::span<const ScoreWindow> windows) const {
  std::vector<PromptRead> reads;
  std::vector<std::shared_ptr<WindowReader>> readers;
  for (const ScoreWindow& window : windows) {
    const auto part = tokens.subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.count));
    readers.push_back(std::make_shared<WindowReader>(part, window.first_scored, model_->info().vocab));
    reads.push_back({{part.begin(), part.end()}, readers.back()});
  }
  MILLRACE_TRY_VOID(
      read_prompts(engine, reads, {current_->share, current_->place, *current_->unwanted, stopping_, thread_}));
  std::vector<float> out;
  for (const auto& reader : readers) out.insert(out.end(), reader->scores().begin(), reader->scores().end());
  return out;
}

Result<std::vector<std::vector<float>>> PromptWorker::embed(Engine& engine,
                                                            std::span<const std::vector<TokenId>> texts) const {
  std::vector<PromptRead> reads;
  std::vector<std::shared_ptr<MeanReader>> readers;
  const auto most = static_cast<size_t>(std::min(TextEmbedder::kMaxTokens, engine.longest_kept()));
  for (const std::vector<TokenId>& text : texts) {
    const size_t count = std::min(text.size(), most);
    readers.push_back(std::make_shared<MeanReader>(count, model_->parts().model->spec().width));
    reads.push_back({{text.begin(), text.begin() + static_cast<ptrdiff_t>(count)}, readers.back()});
  }
  MILLRACE_TRY_VOID(
      read_prompts(engine, reads, {current_->share, current_->place, *current_->unwanted, stopping_, thread_}));
  std::vector<std::vector<float>> out;
  for (const auto& reader : readers) out.push_back(reader->mean());
  return out;
}

// One window after the other, so that the memory of the states does not grow with the prompt.
Result<void> PromptWorker::read_states(Engine& engine, std::span<const TokenId> tokens,
                                       std::span<const ScoreWindow> windows,
                                       const PromptScores::StateSink& sink) const {
  for (const ScoreWindow& window : windows) {
    const auto part = tokens.subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.count));
    const auto reader =
        std::make_shared<StateReader>(window.first_scored, window.count, model_->parts().model->spec().width);
    const std::vector<PromptRead> reads = {{{part.begin(), part.end()}, reader}};
    MILLRACE_TRY_VOID(
        read_prompts(engine, reads, {current_->share, current_->place, *current_->unwanted, stopping_, thread_}));
    for (int64_t i = 0; i < window.scored(); ++i)
      MILLRACE_TRY_VOID(
          sink(static_cast<size_t>(window.begin + window.first_scored + i), reader->row(static_cast<size_t>(i))));
  }
  return {};
}

Result<std::unique_ptr<PromptWorker>> PromptWorker::create(std::shared_ptr<const LanguageModel> model,
                                                           std::vector<std::string> passes, int threads) {
  MILLRACE_TRY(const PromptPipeline pipeline, PromptPipeline::create(passes));
  auto worker = std::unique_ptr<PromptWorker>(new PromptWorker(std::move(model), std::move(passes), threads));
  MILLRACE_TRY_VOID(worker->scores_.open(pipeline));
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
    current_ = &job.work;
    auto compressed = job.work.pipeline.apply(model_->parts().tokenizer.get(), prompt.tokens, prompt.sources,
                                              job.work.budget, &scores_);
    const bool last = piece + 1 == job.work.prompts.size();
    if (!compressed.ok() || last) job.work.place.reset();
    if (!compressed.ok()) {
      job.work.done(compressed.error());
      return false;
    }
    job.out.push_back(std::move(*compressed));
    if (last) job.work.done(std::move(job.out));
    return true;
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while compressing the prompt"));
    return false;
  } catch (const std::exception& error) {
    job.work.done(Error::internal(std::string("compressing the prompt failed: ") + error.what()));
    return false;
  }
}

}  // namespace millrace
