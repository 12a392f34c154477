#include "compress/output/preview.h"

#include "compress/matrix_parts.h"
#include "compress/rounding/column_rounding.h"

namespace millrace {

PassPreview preview_levels(const PassMatrix& matrix) {
  if (std::string why = why_without_levels(matrix); !why.empty()) return preview_left(std::move(why));
  return {"quantized", "", false};
}

void preview_pair(PassMatrix& matrix, int64_t rank, const Format* format) {
  PassParts& parts = matrix.parts;
  parts.rank = rank;
  parts.low_rank_format = format;
  parts.low_rank_a.assign(static_cast<size_t>(rank * matrix.cols), 0);
  parts.low_rank_b.assign(static_cast<size_t>(matrix.rows * rank), 0);
}

void preview_sparse(PassMatrix& matrix, int64_t count, int64_t rows) {
  SparseMatrix& sparse = matrix.parts.sparse;
  sparse.columns.assign(static_cast<size_t>(count), 0);
  sparse.values.assign(static_cast<size_t>(count), 0);
  sparse.row_begin.assign(static_cast<size_t>((rows > 0 ? rows : matrix.rows) + 1), count);
  sparse.row_begin.front() = 0;
}

void preview_columns(PassMatrix& matrix, int64_t count, const Format& format) {
  matrix.parts.columns.assign(static_cast<size_t>(count), 0);
  matrix.parts.column_format = &format;
  matrix.parts.column_weights.assign(static_cast<size_t>(matrix.rows * count), 0);
}

void preview_order(PassMatrix& matrix) { matrix.parts.input.order.assign(static_cast<size_t>(matrix.cols), 0); }

void preview_tables(PassMatrix& matrix, int bits, int64_t group) {
  Codebook& book = matrix.codebook;
  book.bits = bits;
  book.cols_per_table = group;
  book.tables_per_row = matrix.cols / group;
  book.entries.assign(static_cast<size_t>(matrix.rows * book.tables_per_row) << bits, 0);
}

int64_t preview_bytes(const PassMatrix& matrix) {
  int64_t bytes = 0;
  if (!matrix.parts.factored)
    bytes = matrix.rows *
            (matrix.has_codebook() ? matrix.codebook.row_bytes(matrix.cols) : matrix.format->row_bytes(matrix.cols));
  for (const PartTensor& part : part_tensors(matrix)) bytes += std::ssize(part.bytes);
  return bytes;
}

}  // namespace millrace
