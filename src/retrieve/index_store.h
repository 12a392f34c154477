// IndexStore: the documents of an index in one SQLite file: texts, chunks, vectors, and an FTS5 index of each tenant's
// words. It is the only truth of an index; graphs of vectors are made from it. One document is one transaction.
//
//   meta(key, value)                       schema, identity, settings
//   tenants(id, name)
//   documents(id, tenant, path, hash, kind, bytes)      unique: tenant and path
//   chunks(id, document, ordinal, begin, end, heading, text, vector)
//   words_T                                FTS5 of the chunks of tenant T
//
// Identifiers of chunks are never reused, and a chunk never changes. Each tenant has words of its own, so that the
// statistics of BM25 say nothing of other tenants. Values are checked when they are read. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "retrieve/sqlite_database.h"
#include "retrieve/text_chunks.h"

namespace millrace {

// The settings that an index was created with.
struct IndexSettings {
  std::string embedder;      // model that computes the vectors, as given; "": none, words only
  int64_t width = 0;         // values of a vector; 0: none
  std::vector<float> probe;  // vector of kProbeText; tells whether another model is the same
  ChunkOptions chunks;
};

struct IndexedDocument {
  int64_t id = 0;
  std::string path;
  std::string hash;  // XXH3-128 of its bytes, hexadecimal
  std::string kind;
  int64_t bytes = 0, chunks = 0;
};

struct IndexedChunk {
  int64_t id = 0;
  std::string path, heading, text;
  int64_t ordinal = 0, begin = 0, end = 0;  // position among the document's chunks; range of its text in bytes
};

struct RankedChunk {
  int64_t id;
  double score;  // the higher, the better
};

struct NewDocument {
  int64_t tenant = 0;
  std::string_view path, hash, kind;
  int64_t bytes = 0;
  const ChunkedText* text = nullptr;
  std::span<const std::vector<float>> vectors;  // one a chunk; empty: none
};

class IndexStore {
 public:
  // create() writes a new file, which has its name only when it is complete. Errors: those of SqliteDatabase,
  // unsupported (a newer schema), corrupt.
  static Result<std::unique_ptr<IndexStore>> create(const std::string& path, const IndexSettings& settings);
  static Result<std::unique_ptr<IndexStore>> open(const std::string& path);
  Result<void> limit_bytes(int64_t max_bytes);  // limit of the file; 0: none

  const IndexSettings& settings() const { return settings_; }
  const std::string& identity() const { return identity_; }

  // Returns the identifier of a tenant; 0: it has no documents. `add_tenant` creates it.
  Result<int64_t> tenant(std::string_view name) const;
  Result<int64_t> add_tenant(std::string_view name);
  Result<std::vector<std::pair<int64_t, std::string>>> tenants() const;

  Result<std::optional<IndexedDocument>> find(int64_t tenant, std::string_view path) const;
  // All documents of a tenant, by path.
  Result<std::vector<IndexedDocument>> documents(int64_t tenant) const;
  // Replaces an older document of that path. Returns the identifiers of the chunks.
  Result<std::vector<int64_t>> put(const NewDocument& document);
  // Returns false if there is no such document.
  Result<bool> remove(int64_t tenant, std::string_view path);

  Result<std::vector<int64_t>> chunk_ids(int64_t tenant) const;  // those with a vector, ascending
  Result<std::vector<int64_t>> chunks_of(int64_t document) const;
  // Calls `take` for every vector of the tenant, by identifier; stops at an error.
  using VectorSink = std::function<Result<void>(int64_t id, std::span<const float> vector)>;
  Result<void> vectors(int64_t tenant, const VectorSink& take) const;
  Result<std::vector<float>> vector(int64_t id) const;
  Result<std::optional<IndexedChunk>> chunk(int64_t id) const;

  // Returns the chunks with any word of `question`, by BM25 (Robertson and Zaragoza, 2009, The Probabilistic Relevance
  // Framework: BM25 and Beyond; k1 = 1.2, b = 0.75), at most `k`; of equal scores the lower identifier first.
  Result<std::vector<RankedChunk>> by_words(int64_t tenant, std::string_view question, int64_t k) const;

  // Writes all transactions into the file and to the disk.
  Result<void> flush() const;
  Result<int64_t> bytes() const;    // size of the file's pages
  Result<int64_t> version() const;  // changes when another process, or another object, has written
  // Compares the words' index with the chunks, and runs SQLite's own check. Errors: corrupt.
  Result<void> check() const;

 private:
  explicit IndexStore(std::unique_ptr<SqliteDatabase> database) : database_(std::move(database)) {}
  Result<void> read_settings();
  Result<void> remove_rows(int64_t tenant, int64_t document);
  Result<std::string> meta(std::string_view key) const;

  std::unique_ptr<SqliteDatabase> database_;
  IndexSettings settings_;
  std::string identity_;  // 16 random hexadecimal digits
};

// The words of a question as an FTS5 query: each in quotes, joined by OR; "" if there is none.
std::string words_query(std::string_view question);

inline constexpr std::string_view kProbeText = "The miller opened the gate, and water ran along the race to the wheel.";

}  // namespace millrace
