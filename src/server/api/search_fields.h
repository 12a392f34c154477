// Fields of answers that are chosen among several: the best of more than are wanted, and beam search. vLLM's names.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// best_of, use_beam_search, length_penalty, early_stopping.
std::vector<Field> search_fields();
// Behind all fields of the request.
std::optional<ApiError> prepare_search(const Json& body, GenerationRequest& ask);

}  // namespace millrace
