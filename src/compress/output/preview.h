// Computes the parts that passes would store from the sizes of matrices alone: for `compress --dry-run`. Numbers in
// these parts mean nothing.
#pragma once

#include <cstdint>
#include <string>

#include "compress/pass.h"

namespace millrace {

inline PassPreview preview_left(std::string why) { return {"left", std::move(why), false}; }

// As why_without_levels() says, else quantized.
PassPreview preview_levels(const PassMatrix& matrix);

void preview_pair(PassMatrix& matrix, int64_t rank, const Format* format);
// A sparse matrix of `count` values, with as many rows as the matrix has, or others.
void preview_sparse(PassMatrix& matrix, int64_t count, int64_t rows = 0);
void preview_columns(PassMatrix& matrix, int64_t count, const Format& format);
void preview_order(PassMatrix& matrix);
// A codebook of single weights with a table for each row and each `group` of columns.
void preview_tables(PassMatrix& matrix, int bits, int64_t group);

// Bytes of the matrix as it would be stored, with its parts.
int64_t preview_bytes(const PassMatrix& matrix);

}  // namespace millrace
