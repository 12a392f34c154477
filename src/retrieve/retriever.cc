#include "retrieve/retriever.h"

#include <fmt/format.h>

namespace millrace {

Result<std::unique_ptr<Retriever>> Retriever::create(std::unique_ptr<DocumentIndex> index, const std::string& embedder,
                                                     const ModelLoader& load, int threads) {
  auto out = std::unique_ptr<Retriever>(new Retriever(std::move(index)));
  const IndexSettings& made = out->index_->settings();
  if (made.width == 0) return out;
  auto model = load(embedder.empty() ? made.embedder : embedder);
  if (!model.ok())
    return Error{model.error().kind,
                 fmt::format("index {}: its embedding model: {}", out->index_->folder(), model.error().message)};
  MILLRACE_TRY(out->vectors_, model_text_vectors(std::move(*model), threads));
  MILLRACE_TRY_VOID(out->index_->check_model(*out->vectors_));
  return out;
}

Result<std::vector<SearchHit>> Retriever::find(const RetrievalRequest& request) const {
  MILLRACE_TRY_VOID(DocumentIndex::check_question(request.question));
  SearchRequest search;
  search.question = request.question;
  search.tenants = request.tenants;
  search.mode = request.mode;
  search.k = request.k;
  if (vectors_ && request.mode != SearchMode::words) {
    std::lock_guard lock(mutex_);
    MILLRACE_TRY(search.vector, vectors_->of_question(request.question));
  }
  return index_->search(search);
}

Result<AddOutcome> Retriever::add(const std::string& tenant, const std::string& path, DocumentKind kind,
                                  std::string_view bytes) {
  std::lock_guard lock(mutex_);
  return index_->add(tenant, path, kind, bytes, vectors_.get());
}

std::string passage_text(const SearchHit& hit) {
  const IndexedChunk& chunk = hit.chunk;
  return fmt::format("[{}{}]\n{}\n\n", chunk.path, chunk.heading.empty() ? "" : ": " + chunk.heading, chunk.text);
}

}  // namespace millrace
