// The flags that name an index, and the index with its embedding model.
#pragma once

#include <memory>
#include <string>

#include "model_flags.h"
#include "retrieve/document_index.h"
#include "retrieve/text_vectors.h"

namespace millrace {

struct IndexFlags {
  std::string index, tenant;
  ModelFlags model;  // model of the vectors; path "": the one that the index names

  void add_to(CLI::App* command);                                // --index, --tenant
  void add_model_to(CLI::App* command, const std::string& use);  // -m, -t
};

struct OpenedIndex {
  std::unique_ptr<DocumentIndex> index;
  std::unique_ptr<TextVectors> vectors;  // null: the index has none, or they are not needed
};

// Loads a model by any name that -m takes. Errors: those of find_local_model and the load.
Result<std::shared_ptr<const LanguageModel>> load_named(const std::string& name, int threads);

// Opens or creates the index. `chunks`: of a new index; `chunks_given`: refuse other ones of an existing index.
Result<OpenedIndex> open_to_write(const IndexFlags& flags, const ChunkOptions& chunks, bool chunks_given);
Result<OpenedIndex> open_to_read(const IndexFlags& flags, SearchMode mode);

}  // namespace millrace
