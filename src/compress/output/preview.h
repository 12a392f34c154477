// Fills in the parts that passes would store, from the sizes of matrices alone, for `compress --dry-run`. The numbers
// in these parts have no meaning.
#pragma once

#include <cstdint>
#include <string>

#include "compress/pass.h"

namespace millrace {

inline PassPreview preview_left(std::string why) { return {"left", std::move(why), false}; }

// Returns "left" with the reason of why_without_levels(), or "quantized".
PassPreview preview_levels(const PassMatrix& matrix);

void preview_pair(PassMatrix& matrix, int64_t rank, const Format* format);
// Adds a sparse matrix of `count` values. `rows`: its rows; 0: those of the matrix.
void preview_sparse(PassMatrix& matrix, int64_t count, int64_t rows = 0);
void preview_columns(PassMatrix& matrix, int64_t count, const Format& format);
void preview_order(PassMatrix& matrix);
// Adds a codebook of single weights, with a table for each row and each group of `group` columns.
void preview_tables(PassMatrix& matrix, int bits, int64_t group);

// Returns the bytes that the matrix would take with its parts.
int64_t preview_bytes(const PassMatrix& matrix);

}  // namespace millrace
