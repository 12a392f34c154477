// Reads the parts of a matrix (tensor/weight_parts.h) from a GGUF file. The parts of blk.0.attn_q.weight, which is
// stored as [rows, cols], are further tensors:
//
//   blk.0.attn_q.input_shift [cols], .input_scale [cols], .input_hadamard [1 or 2], .input_order [cols]
//                                                         block size; order of the matrix that mixes blocks
//   blk.0.attn_q.input_format [segments, 5]: columns, exponent bits, mantissa bits, columns of a group, clip
//   blk.0.attn_q.low_rank_a [rank, cols], .low_rank_b [rows, rank]        any format; without blk.0.attn_q.weight they
//                                                                         are the matrix (WeightParts::factored)
//   blk.0.attn_q.sparse_counts [rows], .sparse_columns [n], .sparse_values [n]
//   blk.0.attn_q.column_index [n], ascending, .column_weights [rows, n]   any format
//   blk.0.attn_q.output_hadamard [1 or 2], .output_scale [rows], .output_bias [rows]
//   blk.0.attn_q.codebook [tables, books, entries, dim], F16; the matrix is then I8 [rows, bytes of a row's indices]
//   blk.0.attn_q.codebook_groups [2]: rows and columns that share a table; without it all columns do, and rows evenly
//
// Integers are stored as F32, which holds them exactly up to 2^24.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "loader/model_files.h"
#include "tensor/codebook.h"
#include "tensor/weight_parts.h"

namespace millrace {

inline constexpr int64_t kMaxLowRank = 4096;
inline constexpr int64_t kMaxHadamard = 1 << 16;

// Returns true if a tensor of a GGUF file is a part of a matrix, by its name.
bool is_weight_part(std::string_view tensor);
// Returns true if the tensor is stored in addition to a matrix that is multiplied: a part, but not of a pair that
// replaces the matrix.
bool is_side_part(const ModelFiles& files, std::string_view tensor);
// The .low_rank_b of a matrix that is stored as a pair alone; null: `matrix` is none.
const StoredTensor* find_factored(const ModelFiles& files, std::string_view matrix);

// Weights that a stored tensor stands for: its values, or those that its indices name, up to a row's padding to whole
// bytes. 0: neither. `indices` (may be null) is set to the format of the indices, or to null if there are none.
int64_t stored_weights(const ModelFiles& files, const StoredTensor& stored, const Format** indices = nullptr);
// Bytes of the multiplied form, without padding: those of the file, unless its indices are multiplied as Q8_0.
int64_t multiplied_bytes(const ModelFiles& files, const StoredTensor& stored);

// Rows [begin, begin + rows) of a stored matrix with total_rows.
struct PartRows {
  int64_t total_rows = 0;
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Null if `matrix` has no parts. Errors: corrupt (a shape, a missing partner, an index out of range, NaN), unsupported
// (a stack of experts; a type without Format).
Result<std::shared_ptr<WeightParts>> read_weight_parts(const ModelFiles& files, const StoredTensor& matrix,
                                                       const PartRows& at);

// A matrix that is stored as a pair alone, from find_factored(). Errors: as above.
Result<Weight> read_factored(const ModelFiles& files, const StoredTensor& low_rank_b, const PartRows& at);

// The weights that the matrix's indices represent; null if it is not stored as indices. Errors: as above.
Result<std::shared_ptr<Codebook>> read_codebook(const ModelFiles& files, const StoredTensor& matrix,
                                                const PartRows& at);

// Errors: corrupt (a part of no matrix that the file has).
Result<void> check_parts_have_matrices(const ModelFiles& files);

}  // namespace millrace
