#include "server/generation/embedding_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "evaluate/embedder.h"
#include "kv/kv_formats.h"

namespace millrace {
namespace {

constexpr int64_t kMaxValues = int64_t{1} << 25;  // per request
constexpr int64_t kLeastContext = 512;

Result<Pooling> chosen_pooling(const LanguageModel& model, std::optional<Pooling> pooling) {
  if (pooling) return *pooling;
  return model_pooling(*model.parts().files);
}

}  // namespace

EmbeddingWorker::EmbeddingWorker(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine,
                                 int64_t context, std::optional<Pooling> pooling)
    : model_(std::move(model)),
      engine_(engine),
      context_(context),
      pooling_(chosen_pooling(*model_, pooling)),
      thread_("requests are waiting for embeddings") {}

EmbeddingWorker::~EmbeddingWorker() { thread_.stop(); }

int64_t EmbeddingWorker::width() const { return model_->parts().model->spec().width; }

struct EmbeddingWorker::Job {
  Work work;
  std::vector<size_t> begins;  // first text of each piece, and the end
  size_t longest = 1;          // tokens of the longest text
  Vectors out;
};

Result<void> EmbeddingWorker::add(Work work) {
  int64_t rows = 0;
  for (const auto& text : work.texts) rows += work.pooling == Pooling::none ? static_cast<int64_t>(text.size()) : 1;
  if (rows > kMaxValues / width())
    return Error::user(
        fmt::format("input: {} vectors of {} values are more than one response may hold", rows, width()));
  const auto job = std::make_shared<Job>();
  FairWorker::Job fair{.share = work.share, .pieces = {}, .unwanted = work.unwanted, .run = nullptr};
  for (size_t i = 0; i < work.texts.size(); ++i) {
    const auto count = static_cast<int64_t>(work.texts[i].size());
    if (fair.pieces.empty() || fair.pieces.back() + count > engine_.batch_tokens) {
      job->begins.push_back(i);
      fair.pieces.push_back(0);
    }
    fair.pieces.back() += count;
    job->longest = std::max(job->longest, work.texts[i].size());
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
    if (!done.ok())
      job.work.done(done.error());
    else if (piece + 2 >= job.begins.size())
      job.work.done(std::move(job.out));
    return done.ok();
  } catch (const std::bad_alloc&) {
    job.work.done(Error::resource("out of memory while embedding"));
    return false;
  }
}

Result<void> EmbeddingWorker::embed(Job& job, size_t piece) {
  const auto longest = static_cast<int64_t>(job.longest);
  if (!embedder_ || longest > embedder_->context()) {
    embedder_.reset();
    const auto wanted = std::max<int64_t>(kLeastContext, static_cast<int64_t>(std::bit_ceil(job.longest)));
    const EmbedderOptions options{.threads = engine_.threads,
                                  .context = std::min(context_, wanted),
                                  .batch_tokens = engine_.batch_tokens,
                                  .kv_format = kv_format_of_one_group(engine_.kv_format)};
    MILLRACE_TRY(embedder_, Embedder::create(model_, options));
  }
  if (piece + 1 >= job.begins.size()) return {};  // no texts
  const auto texts = std::span(job.work.texts).subspan(job.begins[piece], job.begins[piece + 1] - job.begins[piece]);
  return embedder_->run(texts, job.work.pooling, [&](size_t, std::vector<float> values) -> Result<void> {
    if (*job.work.unwanted) return Error::cancelled("the client has left");
    job.out.push_back(std::move(values));
    return {};
  });
}

}  // namespace millrace
