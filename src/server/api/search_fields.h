// Fields for best-of sampling and beam search, under vLLM's names.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// best_of, use_beam_search, length_penalty, early_stopping.
std::vector<Field> search_fields();
// Call after all fields are read.
std::optional<ApiError> prepare_search(const Json& body, GenerationRequest& params);

}  // namespace millrace
