// The documents that a request asks for by "millrace": {"retrieve": {...}}: passages of an index that match its
// question, which become documents of its prompt (docs/retrieval.md).
#pragma once

#include <optional>

#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

class NamedIndexes;

// Appends the passages to params.documents, and describes them in params.sources. `indexes`: null: the server has none.
std::optional<ApiError> retrieve_documents(const NamedIndexes* indexes, GenerationRequest& params);

}  // namespace millrace
