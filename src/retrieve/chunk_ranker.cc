#include "retrieve/chunk_ranker.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

constexpr int64_t kMaxPairTokens = 4096;

Pooling pooling_of(const RankingHead& head) {
  if (head.row() == RankingHead::Row::last) return Pooling::last;
  return head.row() == RankingHead::Row::mean ? Pooling::mean : Pooling::cls;
}

}  // namespace

Result<std::unique_ptr<ChunkRanker>> ChunkRanker::create(std::shared_ptr<const LanguageModel> model, int threads) {
  const LanguageModel::Parts& parts = model->parts();
  MILLRACE_TRY(auto head, RankingHead::read(*parts.files, parts.model->spec()));
  if (!head || !head->relevant())
    return Error::unsupported(
        fmt::format("{}: has no ranking head; choose a reranker, such as bge-reranker-v2-m3", parts.files->path));
  MILLRACE_TRY(RankPrompt prompt, RankPrompt::create(*model));
  const int64_t context = std::min(kMaxPairTokens, parts.model->context());
  auto out = std::unique_ptr<ChunkRanker>(new ChunkRanker(model, std::move(*head), std::move(prompt)));
  MILLRACE_TRY(out->embedder_, Embedder::create(std::move(model), {.threads = threads, .context = context}));
  return out;
}

Result<void> ChunkRanker::rank(const std::string& question, int64_t k, std::vector<SearchHit>& hits) {
  std::vector<std::vector<TokenId>> pairs;
  for (const SearchHit& hit : hits) {
    MILLRACE_TRY(auto pair,
                 prompt_.cut(question, hit.chunk.text, embedder_->context(), std::numeric_limits<int64_t>::max()));
    pairs.push_back(std::move(pair.tokens));
  }
  MILLRACE_TRY_VOID(
      embedder_->run(pairs, pooling_of(head_), [&](size_t pair, std::vector<float> hidden) -> Result<void> {
        hits[pair].score = head_.score(hidden, /*activated=*/true);
        return {};
      }));
  std::ranges::stable_sort(hits, std::greater(), &SearchHit::score);
  if (static_cast<int64_t>(hits.size()) > k) hits.resize(static_cast<size_t>(k));
  return {};
}

}  // namespace millrace
