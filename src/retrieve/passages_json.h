// Found passages as JSON, for commands and responses.
#pragma once

#include <span>

#include "base/ordered_json.h"
#include "retrieve/document_index.h"

namespace millrace {

// Returns an array of {"path", "heading", "chunk", "begin", "end", "score", "text"}. Invalid UTF-8 does not occur: an
// index has replaced it.
nlohmann::ordered_json passages_json(std::span<const SearchHit> passages);

}  // namespace millrace
