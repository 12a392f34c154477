#include "compress/matrix_parts.h"

#include <algorithm>
#include <cmath>

#include "models/blocks/part_products.h"
#include "tensor/half.h"

namespace millrace {
namespace {

std::string part_name(const PassMatrix& matrix, const char* part) {
  constexpr size_t kWeight = 7;  // ".weight"
  return matrix.name.substr(0, matrix.name.size() - kWeight) + part;
}

template <typename Values>
PartTensor tensor(std::string name, const char* format, std::vector<int64_t> dims, const Values& values) {
  PartTensor out{std::move(name), find_format(format), std::move(dims), {}};
  const std::vector<float> floats(values.begin(), values.end());
  out.bytes.resize(static_cast<size_t>(out.format->row_bytes(std::ssize(floats))));
  out.format->encode(floats.data(), out.bytes.data(), std::ssize(floats));
  return out;
}

void stored_columns_to_inputs(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch) {
  for (size_t c = 0; c < change.order.size(); ++c) scratch[static_cast<size_t>(change.order[c])] = row[c];
  if (!change.order.empty()) std::copy_n(scratch.begin(), cols, row);
  const InputChange turn{.hadamard = change.hadamard};  // symmetric, and its own inverse
  if (change.hadamard > 0) {
    std::copy_n(row, cols, scratch.begin());
    change_input(turn, scratch.data(), cols, nullptr, row);
  }
  for (size_t c = 0; c < change.scale.size(); ++c) row[c] *= change.scale[c];
}

}  // namespace

std::vector<PartTensor> part_tensors(const PassMatrix& matrix) {
  const PassParts& parts = matrix.parts;
  const InputChange& input = parts.input;
  std::vector<PartTensor> out;
  const auto add = [&](const char* part, const char* format, std::vector<int64_t> dims, const auto& values) {
    out.push_back(tensor(part_name(matrix, part), format, std::move(dims), values));
  };
  if (!input.scale.empty()) add(".input_scale", "f32", {matrix.cols}, input.scale);
  if (input.hadamard > 0) add(".input_hadamard", "f32", {1}, std::vector<int64_t>{input.hadamard});
  if (!input.order.empty()) add(".input_order", "f32", {matrix.cols}, input.order);
  if (parts.rank > 0) {
    add(".low_rank_a", "f16", {parts.rank, matrix.cols}, parts.low_rank_a);
    add(".low_rank_b", "f16", {matrix.rows, parts.rank}, parts.low_rank_b);
  }
  if (matrix.has_codebook()) {
    const Codebook& book = matrix.codebook;
    std::vector<float> entries;
    for (uint16_t entry : book.entries) entries.push_back(f16_to_f32(entry));
    const int64_t tables = std::ssize(entries) / book.table_values();
    add(".codebook", "f16", {tables, book.books, int64_t{1} << book.bits, book.dim}, entries);
    if (book.cols_per_table != matrix.cols || book.rows_per_table * tables != matrix.rows)
      add(".codebook_groups", "f32", {2}, std::vector<int64_t>{book.rows_per_table, book.cols_per_table});
  }
  if (parts.sparse.values.empty()) return out;
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < matrix.rows; ++r)
    counts.push_back(parts.sparse.row_begin[static_cast<size_t>(r + 1)] -
                     parts.sparse.row_begin[static_cast<size_t>(r)]);
  const int64_t n = std::ssize(parts.sparse.values);
  add(".sparse_counts", "f32", {matrix.rows}, counts);
  add(".sparse_columns", "f32", {n}, parts.sparse.columns);
  add(".sparse_values", "f32", {n}, parts.sparse.values);
  return out;
}

void apply_input_change(const InputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool) {
  if (change.empty()) return;
  pool.parallel_for(std::ssize(values) / cols, [&](int64_t r, int) {
    std::vector<float> scratch(static_cast<size_t>(cols));
    stored_columns_to_inputs(change, values.data() + r * cols, cols, scratch);
  });
}

void apply_parts(const PassMatrix& matrix, std::vector<float>& values, ThreadPool& pool) {
  const PassParts& parts = matrix.parts;
  if (parts.empty()) return;
  const int64_t cols = matrix.cols;
  apply_input_change(parts.input, cols, values, pool);
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    float* row = values.data() + r * cols;
    for (int64_t k = 0; k < parts.rank; ++k) {
      const float b = parts.low_rank_b[static_cast<size_t>(r * parts.rank + k)];
      for (int64_t c = 0; c < cols; ++c) row[c] += b * parts.low_rank_a[static_cast<size_t>(k * cols + c)];
    }
    if (parts.sparse.empty()) return;
    for (int64_t i = parts.sparse.row_begin[static_cast<size_t>(r)];
         i < parts.sparse.row_begin[static_cast<size_t>(r + 1)]; ++i)
      row[parts.sparse.columns[static_cast<size_t>(i)]] += parts.sparse.values[static_cast<size_t>(i)];
  });
}

void store_row(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch) {
  for (size_t c = 0; c < change.scale.size(); ++c) row[c] /= change.scale[c];
  scratch.resize(static_cast<size_t>(cols));
  const InputChange turn{.hadamard = change.hadamard};
  if (change.hadamard > 0) {
    std::copy_n(row, cols, scratch.begin());
    change_input(turn, scratch.data(), cols, nullptr, row);
  }
  if (change.order.empty()) return;
  std::copy_n(row, cols, scratch.begin());
  for (int64_t c = 0; c < cols; ++c) row[c] = scratch[static_cast<size_t>(change.order[static_cast<size_t>(c)])];
}

}  // namespace millrace
