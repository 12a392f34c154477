// DocumentIndex: documents that questions find. A folder with the store (index_store.h), which is the truth, and the
// graphs of vectors made from it (vector_graph.h):
//
//   FOLDER/index.sqlite          documents, chunks, vectors, words
//   FOLDER/vectors-T.hnsw        the graph of tenant T; rebuilt where it is missing, damaged or old
//   FOLDER/lock                  locked (flock) by the process that writes
//
//   auto index = DocumentIndex::create(folder, settings);       // or open(folder, IndexAccess::write)
//   index->add("", "notes.md", DocumentKind::markdown, bytes, &vectors);
//   index->search({.question = "Who?", .vector = vectors.of_question("Who?"), .tenants = {""}, .k = 10});
//   index->save();
//
// A document is stored completely or not at all, whenever the process ends; a document whose bytes are as stored is not
// computed again. Chunks of one tenant are never found for another. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "retrieve/index_store.h"
#include "retrieve/text_vectors.h"
#include "retrieve/vector_graph.h"

namespace millrace {

enum class IndexAccess { read, write };
enum class SearchMode { hybrid, vector, words };
std::optional<SearchMode> find_search_mode(std::string_view name);  // hybrid, vector, text

struct SearchRequest {
  std::string question;
  std::vector<float> vector;  // vector of the question; empty: words only
  std::vector<std::string> tenants = {""};
  SearchMode mode = SearchMode::hybrid;  // hybrid is words for an index without vectors
  int64_t k = 10;
  int64_t effort = 100;  // vectors that a search of the graph keeps in view
  bool exact = false;    // compare the question with every vector, without the graph
};
inline constexpr int64_t kMaxSearchResults = 1000, kMaxSearchEffort = 10000;

struct SearchHit {
  IndexedChunk chunk;
  double score = 0;  // hybrid: of the fusion; vector: cosine; text: BM25; after a ranking: of the ranking model
};

enum class AddOutcome { added, replaced, unchanged };

struct IndexStats {
  int64_t documents = 0, chunks = 0, vectors = 0, tenants = 0;
  int64_t text_bytes = 0;  // size of the documents' files
  int64_t store_bytes = 0;
  IndexSettings settings;
};

class DocumentIndex {
 public:
  ~DocumentIndex();
  DocumentIndex(const DocumentIndex&) = delete;

  // Returns true if the folder has an index.
  static bool exists(const std::string& folder);
  // Creates the folder, if necessary, and the index, for writing. Errors: user (the folder has an index or cannot be
  // used), resource (another process writes).
  static Result<std::unique_ptr<DocumentIndex>> create(const std::string& folder, const IndexSettings& settings);
  // Errors: user (no index), resource (IndexAccess::write: another process writes), corrupt, unsupported.
  static Result<std::unique_ptr<DocumentIndex>> open(const std::string& folder, IndexAccess access);

  const std::string& folder() const { return folder_; }
  const IndexSettings& settings() const { return store_->settings(); }
  // Refuses a model that did not compute the index's vectors. Errors: user.
  Result<void> check_model(TextVectors& vectors) const;
  Result<void> limit_bytes(int64_t max_bytes);

  // `path`: name of the document. `vectors`: null for an index without vectors. Errors: those of chunk_document(),
  // TextVectors and the store; the index is then as before.
  Result<AddOutcome> add(const std::string& tenant, const std::string& path, DocumentKind kind, std::string_view bytes,
                         TextVectors* vectors);
  // Returns false if there is no such document.
  Result<bool> remove(const std::string& tenant, const std::string& path);
  Result<std::vector<IndexedDocument>> documents(const std::string& tenant) const;

  // Errors: user (bounds of the request, a vector of another width), those of the store.
  Result<std::vector<SearchHit>> search(const SearchRequest& request) const;
  // Errors: user (a question that search() refuses for its length).
  static Result<void> check_question(std::string_view question);
  Result<IndexStats> stats() const;
  // Compares the parts of the index with each other. Errors: corrupt.
  Result<void> check() const;

  // Writes the graphs, and the store to the disk.
  Result<void> save();
  // Number of graphs that had to be made again from the store, in whole or in part.
  int64_t rebuilt_graphs() const { return rebuilt_; }

 private:
  struct CachedGraph {
    VectorGraph graph;
    int64_t version = -1;  // version of the store when the graph was last completed
  };
  DocumentIndex(std::string folder, int lock) : folder_(std::move(folder)), lock_(lock) {}
  std::string graph_path(int64_t tenant) const;
  Result<VectorGraph*> graph(int64_t tenant) const;
  Result<VectorGraph> rebuild(int64_t tenant) const;
  Result<void> complete(int64_t tenant, VectorGraph& graph) const;
  Result<std::vector<RankedChunk>> by_vector(int64_t tenant, const SearchRequest& request, int64_t k) const;
  Result<std::vector<RankedChunk>> ranked(const SearchRequest& request) const;
  Result<void> save_graph(int64_t tenant, const VectorGraph& graph) const;

  const std::string folder_;
  const int lock_;  // descriptor of the locked file; -1: opened for reading
  mutable std::mutex mutex_;
  std::unique_ptr<IndexStore> store_;
  mutable std::map<int64_t, CachedGraph> graphs_;  // by tenant; loaded when first used
  mutable int64_t rebuilt_ = 0;
};

}  // namespace millrace
