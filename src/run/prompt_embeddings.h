// Rows that a request has instead of prompt tokens: checks, look-up, and the keys that distinguish their prefixes. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "millrace/request.h"
#include "millrace/result.h"

namespace millrace {

// Errors: user (no rows, rows of another width, outside the prompt, out of order, NaN or infinity).
Result<void> check_embeddings(const Request& request, int64_t width);

// The row given for a position; empty if it is a token.
std::span<const float> embedding_at(const Request& request, int64_t position, int64_t width);

// Hash of the rows and their positions, in hexadecimal digits; "" for none.
std::string embeddings_identity(const Request& request);

// Memory that the rows take.
int64_t embeddings_bytes(const Request& request);

}  // namespace millrace
