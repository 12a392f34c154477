// ChunkRanker: sorts found chunks again with a reranker, which reads the question and one chunk together. The model has
// a ranking head. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evaluate/embedder.h"
#include "models/ranking_head.h"
#include "prompt/rank_prompt.h"
#include "retrieve/document_index.h"

namespace millrace {

class ChunkRanker {
 public:
  // `threads`: 0: all cores. Errors: unsupported (a model that cannot rank), those of Embedder::create.
  static Result<std::unique_ptr<ChunkRanker>> create(std::shared_ptr<const LanguageModel> model, int threads);

  // Sorts by the model's score, of equal ones in the order before, and keeps the first `k`. Long chunks are cut.
  Result<void> rank(const std::string& question, int64_t k, std::vector<SearchHit>& hits);

 private:
  ChunkRanker(std::shared_ptr<const LanguageModel> model, RankingHead head, RankPrompt prompt)
      : model_(std::move(model)), head_(std::move(head)), prompt_(std::move(prompt)) {}

  const std::shared_ptr<const LanguageModel> model_;
  const RankingHead head_;
  const RankPrompt prompt_;
  std::unique_ptr<Embedder> embedder_;
};

}  // namespace millrace
