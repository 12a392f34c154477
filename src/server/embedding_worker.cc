#include "server/embedding_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

#include "engine/embedder.h"

namespace millrace {
namespace {

constexpr size_t kMostWaiting = 64;
constexpr int64_t kMostValues = int64_t{1} << 25;  // of one request
constexpr int64_t kLeastContext = 512;

Result<Pooling> chosen_pooling(const LanguageModel& model, std::optional<Pooling> pooling) {
  if (pooling) return *pooling;
  return model_pooling(*model.parts().files);
}

}  // namespace

EmbeddingWorker::EmbeddingWorker(std::shared_ptr<const LanguageModel> model, const EngineOptions& engine, int64_t context, std::optional<Pooling> pooling)
    : model_(std::move(model)), engine_(engine), context_(context), pooling_(chosen_pooling(*model_, pooling)), thread_(kMostWaiting) {}

EmbeddingWorker::~EmbeddingWorker() { thread_.stop(); }

int64_t EmbeddingWorker::width() const { return model_->parts().model->spec().width; }

Result<void> EmbeddingWorker::add(Work work) {
  int64_t rows = 0;
  for (const auto& text : work.texts) rows += work.pooling == Pooling::none ? static_cast<int64_t>(text.size()) : 1;
  if (rows > kMostValues / width()) return Error::user(fmt::format("input: {} vectors of {} values are more than one answer holds", rows, width()));
  const auto shared = std::make_shared<Work>(std::move(work));
  if (!thread_.add([this, shared] { run(*shared); })) return Error::resource("queue: too many texts wait to be embedded; try again later");
  return {};
}

void EmbeddingWorker::run(const Work& work) {
  if (*work.unwanted) return;
  try {
    work.done(embed(work));
  } catch (const std::bad_alloc&) {
    work.done(Error::resource("out of memory while embedding"));
  }
}

Result<EmbeddingWorker::Vectors> EmbeddingWorker::embed(const Work& work) {
  size_t longest = 1;
  for (const auto& text : work.texts) longest = std::max(longest, text.size());
  if (!embedder_ || static_cast<int64_t>(longest) > embedder_->context()) {
    embedder_.reset();
    const auto wanted = std::max<int64_t>(kLeastContext, static_cast<int64_t>(std::bit_ceil(longest)));
    const EmbedderOptions options{.threads = engine_.threads, .context = std::min(context_, wanted), .batch_tokens = engine_.batch_tokens, .kv_format = engine_.kv_format};
    MILLRACE_TRY(embedder_, Embedder::create(model_, options));
  }
  Vectors out;
  MILLRACE_TRY_VOID(embedder_->run(work.texts, work.pooling, [&](size_t, std::vector<float> values) -> Result<void> {
    if (*work.unwanted) return Error::cancelled("nobody waits for it");
    out.push_back(std::move(values));
    return {};
  }));
  return out;
}

}  // namespace millrace
