#include "server/generation/embedding_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "run/language_model.h"
#include "server/generation/prompt_reads.h"

namespace millrace {
namespace {

constexpr int64_t kMaxValues = int64_t{1} << 25;  // per request

Result<Pooling> chosen_pooling(const LanguageModel& model, std::optional<Pooling> pooling) {
  if (pooling) return *pooling;
  return model_pooling(*model.parts().files);
}

// Pools the final hidden states of one text.
class TextReader final : public PromptReader {
 public:
  TextReader(int64_t tokens, int64_t width, Pooling pooling)
      : tokens_(tokens), width_(static_cast<size_t>(width)), pooling_(pooling) {
    if (pooling == Pooling::mean) sum_.resize(width_);
    values_.reserve(width_ * (pooling == Pooling::none ? static_cast<size_t>(tokens) : 1));
  }

  bool logits() const override { return false; }
  bool wants(int64_t position) const override {
    return pooling_ == Pooling::last ? position + 1 == tokens_ : pooling_ != Pooling::cls || position == 0;
  }
  // Sums in the order of the text. Rows that a preempted request brings again are known.
  void read(int64_t position, const float* row) override {
    if (position < next_) return;
    next_ = position + 1;
    if (pooling_ != Pooling::mean) {
      values_.insert(values_.end(), row, row + width_);
      return;
    }
    for (size_t i = 0; i < width_; ++i) sum_[i] += row[i];
  }

  std::vector<float> take() {
    for (double sum : sum_) values_.push_back(static_cast<float>(sum / static_cast<double>(tokens_)));
    return std::move(values_);
  }

 private:
  const int64_t tokens_;
  const size_t width_;
  const Pooling pooling_;
  int64_t next_ = 0;
  std::vector<double> sum_;  // for the mean
  std::vector<float> values_;
};

}  // namespace

EmbeddingWorker::EmbeddingWorker(const LanguageModel& model, Engine& engine, int64_t batch_tokens,
                                 std::optional<Pooling> pooling)
    : engine_(engine),
      batch_tokens_(batch_tokens),
      context_(engine.context()),
      width_(model.parts().model->spec().width),
      pooling_(chosen_pooling(model, pooling)),
      head_(VectorHead::read(*model.parts().files, width_)),
      prefixes_(TaskPrefixes::read(*model.parts().files)),
      thread_("requests are waiting for embeddings") {}

EmbeddingWorker::~EmbeddingWorker() {
  stopping_ = true;
  thread_.stop();
}

struct EmbeddingWorker::Job {
  Work work;
  std::vector<size_t> begins;  // first text of each piece, and the end
  Vectors out;
};

Result<void> EmbeddingWorker::add(Work work) {
  int64_t rows = 0;
  for (const auto& text : work.texts) rows += work.pooling == Pooling::none ? static_cast<int64_t>(text.size()) : 1;
  if (!head_.ok()) return head_.error();
  const int64_t values = width(work.pooling);
  if (rows > kMaxValues / values)
    return Error::user(fmt::format("input: {} vectors of {} values are more than one response may hold", rows, values));
  int64_t longest = 0;
  for (const auto& text : work.texts) longest = std::max<int64_t>(longest, std::ssize(text));
  MILLRACE_TRY(work.place, engine_.take_place(longest));
  const auto job = std::make_shared<Job>();
  FairWorker::Job fair{.share = work.share, .pieces = {}, .unwanted = work.unwanted, .run = nullptr};
  for (size_t i = 0; i < work.texts.size(); ++i) {
    const auto count = static_cast<int64_t>(work.texts[i].size());
    if (fair.pieces.empty() || fair.pieces.back() + count > batch_tokens_) {
      job->begins.push_back(i);
      fair.pieces.push_back(0);
    }
    fair.pieces.back() += count;
  }
  job->begins.push_back(work.texts.size());
  if (fair.pieces.empty()) fair.pieces.push_back(0);
  job->work = std::move(work);
  fair.run = [this, job](size_t piece) { return run(*job, piece); };
  return thread_.add(std::move(fair));
}

bool EmbeddingWorker::run(Job& job, size_t piece) {
  try {
    const auto done = embed(job, piece);
    const bool last = piece + 2 >= job.begins.size();
    if (!done.ok() || last) job.work.place.reset();
    if (!done.ok())
      job.work.done(done.error());
    else if (last)
      job.work.done(std::move(job.out));
    return done.ok();
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while embedding"));
    return false;
  } catch (const std::exception& error) {
    job.work.done(Error::internal(std::string("embedding failed: ") + error.what()));
    return false;
  }
}

Result<void> EmbeddingWorker::embed(Job& job, size_t piece) {
  if (piece + 1 >= job.begins.size()) return {};  // no texts
  std::vector<PromptRead> prompts;
  std::vector<std::shared_ptr<TextReader>> readers;
  for (size_t i = job.begins[piece]; i < job.begins[piece + 1]; ++i) {
    std::vector<TokenId>& text = job.work.texts[i];
    readers.push_back(std::make_shared<TextReader>(std::ssize(text), width_, job.work.pooling));
    prompts.push_back({std::move(text), readers.back()});
  }
  MILLRACE_TRY_VOID(
      read_prompts(engine_, prompts, {job.work.share, job.work.place, *job.work.unwanted, stopping_, thread_}));
  for (const auto& reader : readers) {
    job.out.push_back(reader->take());
    if (job.work.pooling != Pooling::none) head_->apply(job.out.back());
  }
  return {};
}

}  // namespace millrace
