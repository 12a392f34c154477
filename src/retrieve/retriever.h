// Retriever: an index with the model of its vectors, as a request uses it: a question in, passages out. For
// `millrace run --retrieve` and the server. Thread-safe: one question is embedded at a time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "retrieve/document_index.h"

namespace millrace {

class LanguageModel;

// Loads a model by the name that an index has of it.
using ModelLoader = std::function<Result<std::shared_ptr<const LanguageModel>>(const std::string& name)>;

struct RetrievalRequest {
  std::string question;
  std::vector<std::string> tenants = {""};
  SearchMode mode = SearchMode::hybrid;
  int64_t k = 4;
};

class Retriever {
 public:
  // `index`: opened. `embedder`: name of the model; "": the one that the index has. Errors: those of `load`, user (a
  // model that did not compute the index's vectors).
  static Result<std::unique_ptr<Retriever>> create(std::unique_ptr<DocumentIndex> index, const std::string& embedder,
                                                   const ModelLoader& load, int threads);

  DocumentIndex& index() const { return *index_; }

  Result<std::vector<SearchHit>> find(const RetrievalRequest& request) const;
  // Adds a document, as DocumentIndex::add() does.
  Result<AddOutcome> add(const std::string& tenant, const std::string& path, DocumentKind kind, std::string_view bytes);

 private:
  explicit Retriever(std::unique_ptr<DocumentIndex> index) : index_(std::move(index)) {}

  const std::unique_ptr<DocumentIndex> index_;
  mutable std::mutex mutex_;              // guards vectors_
  std::unique_ptr<TextVectors> vectors_;  // null: an index of words
};

// The text of a passage as a prompt has it: its source and heading on the first line, then the text.
std::string passage_text(const SearchHit& hit);

}  // namespace millrace
