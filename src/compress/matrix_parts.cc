#include "compress/matrix_parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "models/blocks/changed_products.h"
#include "tensor/half.h"

namespace millrace {
namespace {

std::string part_name(const PassMatrix& matrix, const char* part) {
  constexpr size_t kWeight = 7;  // ".weight"
  return matrix.name.substr(0, matrix.name.size() - kWeight) + part;
}

template <typename Values>
PartTensor tensor(std::string name, const Format* format, std::vector<int64_t> dims, const Values& values) {
  PartTensor out{std::move(name), format, std::move(dims), {}, false};
  const std::vector<float> floats(values.begin(), values.end());
  out.bytes.resize(static_cast<size_t>(out.format->row_bytes(std::ssize(floats))));
  out.format->encode(floats.data(), out.bytes.data(), std::ssize(floats));
  return out;
}

// The sparse part then is the factor A [rank, cols], in place of low_rank_a.
bool has_sparse_factor(const PassParts& parts) { return parts.factored && parts.low_rank_a.empty(); }

void stored_columns_to_inputs(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch) {
  if (!change.order.empty()) {
    std::fill_n(scratch.begin(), cols, 0.0f);
    for (size_t c = 0; c < change.order.size(); ++c) scratch[static_cast<size_t>(change.order[c])] += row[c];
    std::copy_n(scratch.begin(), cols, row);
  }
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
  const Format& f32 = *find_format("f32");
  std::vector<PartTensor> out;
  const auto add = [&](const char* part, const Format& format, std::vector<int64_t> dims, const auto& values) {
    out.push_back(tensor(part_name(matrix, part), &format, std::move(dims), values));
    out.back().of_factored = parts.factored;
  };
  if (!input.shift.empty()) add(".input_shift", f32, {matrix.cols}, input.shift);
  if (!input.scale.empty()) add(".input_scale", f32, {matrix.cols}, input.scale);
  if (input.hadamard > 0) add(".input_hadamard", f32, {1}, std::vector<int64_t>{input.hadamard});
  if (!input.order.empty()) add(".input_order", f32, {matrix.cols}, input.order);
  if (!input.rounding.empty()) {
    std::vector<float> numbers;
    for (const InputSegment& one : input.rounding) {
      for (int32_t number : {one.columns, one.exponent_bits, one.mantissa_bits, one.group})
        numbers.push_back(static_cast<float>(number));
      numbers.push_back(one.clip);
    }
    add(".input_format", f32, {std::ssize(input.rounding), 5}, numbers);
  }
  if (!parts.columns.empty()) {
    add(".column_index", f32, {std::ssize(parts.columns)}, parts.columns);
    add(".column_weights", *parts.column_format, {matrix.rows, std::ssize(parts.columns)}, parts.column_weights);
  }
  if (parts.output.hadamard > 0) add(".output_hadamard", f32, {1}, std::vector<int64_t>{parts.output.hadamard});
  if (!parts.output.scale.empty()) add(".output_scale", f32, {matrix.rows}, parts.output.scale);
  if (!parts.bias.empty()) add(".output_bias", f32, {matrix.rows}, parts.bias);
  if (parts.rank > 0) {
    const Format& format = parts.low_rank_format ? *parts.low_rank_format : *find_format("f16");
    if (!parts.low_rank_a.empty()) add(".low_rank_a", format, {parts.rank, matrix.cols}, parts.low_rank_a);
    add(".low_rank_b", format, {matrix.rows, parts.rank}, parts.low_rank_b);
  }
  if (matrix.has_codebook()) {
    const Codebook& book = matrix.codebook;
    std::vector<float> entries;
    for (uint16_t entry : book.entries) entries.push_back(f16_to_f32(entry));
    const int64_t tables = std::ssize(entries) / book.table_values();
    add(".codebook", *find_format("f16"), {tables, book.books, int64_t{1} << book.bits, book.dim}, entries);
    if (book.cols_per_table != matrix.cols || book.rows_per_table * tables != matrix.rows)
      add(".codebook_groups", f32, {2}, std::vector<int64_t>{book.rows_per_table, book.cols_per_table});
  }
  if (parts.sparse.empty() || (parts.sparse.values.empty() && !has_sparse_factor(parts))) return out;
  const std::string stem = has_sparse_factor(parts) ? ".inner" : ".sparse";
  std::vector<int64_t> counts;
  for (size_t r = 0; r + 1 < parts.sparse.row_begin.size(); ++r)
    counts.push_back(parts.sparse.row_begin[r + 1] - parts.sparse.row_begin[r]);
  const int64_t n = std::ssize(parts.sparse.values);
  add((stem + "_counts").c_str(), f32, {std::ssize(counts)}, counts);
  add((stem + "_columns").c_str(), f32, {n}, parts.sparse.columns);
  add((stem + "_values").c_str(), f32, {n}, parts.sparse.values);
  return out;
}

void apply_input_change(const InputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool) {
  if (change.empty()) return;
  pool.parallel_for(std::ssize(values) / cols, [&](int64_t r, int) {
    std::vector<float> scratch(static_cast<size_t>(cols));
    stored_columns_to_inputs(change, values.data() + r * cols, cols, scratch);
  });
}

namespace {

// Blocks of rows times a Hadamard matrix: symmetric, and its own inverse.
void turn_rows(int64_t block, int64_t cols, std::vector<float>& values, ThreadPool& pool) {
  if (block == 0) return;
  pool.parallel_for(cols, [&](int64_t c, int) {
    std::vector<float> column(values.size() / static_cast<size_t>(cols));
    for (size_t r = 0; r < column.size(); ++r)
      column[r] = values[r * static_cast<size_t>(cols) + static_cast<size_t>(c)];
    transform_rows(block, column.data(), std::ssize(column));
    for (size_t r = 0; r < column.size(); ++r)
      values[r * static_cast<size_t>(cols) + static_cast<size_t>(c)] = column[r];
  });
}

}  // namespace

void apply_output_change(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool) {
  turn_rows(change.hadamard, cols, values, pool);
  for (size_t r = 0; r < change.scale.size(); ++r)
    for (int64_t c = 0; c < cols; ++c)
      values[r * static_cast<size_t>(cols) + static_cast<size_t>(c)] *= change.scale[r];
}

void store_rows(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool) {
  for (size_t r = 0; r < change.scale.size(); ++r)
    for (int64_t c = 0; c < cols; ++c)
      values[r * static_cast<size_t>(cols) + static_cast<size_t>(c)] /= change.scale[r];
  turn_rows(change.hadamard, cols, values, pool);
}

void apply_parts(const PassMatrix& matrix, std::vector<float>& values, ThreadPool& pool) {
  const PassParts& parts = matrix.parts;
  if (parts.empty()) return;
  const int64_t cols = matrix.cols;
  apply_input_change(parts.input, cols, values, pool);
  apply_output_change(parts.output, cols, values, pool);
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    float* row = values.data() + r * cols;
    const auto add_sparse_row = [&](int64_t from, float factor) {
      for (int64_t i = parts.sparse.row_begin[static_cast<size_t>(from)];
           i < parts.sparse.row_begin[static_cast<size_t>(from + 1)]; ++i)
        row[parts.sparse.columns[static_cast<size_t>(i)]] += factor * parts.sparse.values[static_cast<size_t>(i)];
    };
    for (int64_t k = 0; k < parts.rank; ++k) {
      const float b = parts.low_rank_b[static_cast<size_t>(r * parts.rank + k)];
      if (has_sparse_factor(parts)) add_sparse_row(k, b);
      for (int64_t c = 0; c < cols && !parts.low_rank_a.empty(); ++c)
        row[c] += b * parts.low_rank_a[static_cast<size_t>(k * cols + c)];
    }
    const int64_t columns = std::ssize(parts.columns);
    for (int64_t i = 0; i < columns; ++i)
      row[parts.columns[static_cast<size_t>(i)]] += parts.column_weights[static_cast<size_t>(r * columns + i)];
    if (!parts.sparse.empty() && !has_sparse_factor(parts)) add_sparse_row(r, 1);
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

SecondMoments changed_moments(const SecondMoments& moments, const InputChange& change) {
  const int64_t n = moments.columns();
  std::vector<double> h = moments.dense();
  const auto at = [&](int64_t i, int64_t j) -> double& { return h[static_cast<size_t>(i * n + j)]; };
  for (int64_t i = 0; !change.scale.empty() && i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      at(i, j) *= double{change.scale[static_cast<size_t>(i)]} * change.scale[static_cast<size_t>(j)];
  // H h H, columns first, then rows: h is symmetric.
  for (int side = 0; change.hadamard > 0 && side < 2; ++side) {
    for (int64_t begin = 0; begin < n; begin += change.hadamard)
      for (int64_t half = 1; half < change.hadamard; half *= 2)
        for (int64_t i = begin; i < begin + change.hadamard; ++i) {
          if ((i - begin) / half % 2 != 0) continue;
          for (int64_t j = 0; j < n; ++j) {
            const double a = at(i, j), b = at(i + half, j);
            at(i, j) = (a + b) * std::numbers::sqrt2 / 2;
            at(i + half, j) = (a - b) * std::numbers::sqrt2 / 2;
          }
        }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) std::swap(at(i, j), at(j, i));
  }
  SecondMoments out(n);
  const auto input = [&](int64_t i) {
    return change.order.empty() ? i : int64_t{change.order[static_cast<size_t>(i)]};
  };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j) out.set(i, j, (at(input(i), input(j)) + at(input(j), input(i))) / 2);
  return out;
}

void add_sparse_rest(PassMatrix& matrix, const std::vector<uint8_t>& exact) {
  SparseMatrix& sparse = matrix.parts.sparse;
  std::vector<float> decoded(static_cast<size_t>(matrix.cols));
  sparse.row_begin = {0};
  for (int64_t r = 0; r < matrix.rows; ++r) {
    matrix.decode_row(r, decoded.data());
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const auto i = static_cast<size_t>(r * matrix.cols + c);
      if (!exact[i]) continue;
      sparse.columns.push_back(static_cast<int32_t>(c));
      sparse.values.push_back((matrix.pruned(r, c) ? 0 : matrix.values[i]) - decoded[static_cast<size_t>(c)]);
    }
    sparse.row_begin.push_back(std::ssize(sparse.values));
  }
}

void order_inputs(PassMatrix& matrix, const std::vector<int32_t>& order, ThreadPool& pool) {
  const InputChange change{.order = order};
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> scratch;
    store_row(change, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
    if (matrix.kept.empty()) return;
    const std::vector<uint8_t> kept(matrix.kept.begin() + r * matrix.cols, matrix.kept.begin() + (r + 1) * matrix.cols);
    for (int64_t c = 0; c < matrix.cols; ++c)
      matrix.kept[static_cast<size_t>(r * matrix.cols + c)] = kept[static_cast<size_t>(order[static_cast<size_t>(c)])];
  });
  std::vector<int32_t>& stored = matrix.parts.input.order;
  std::vector<int32_t> composed = order;
  if (!stored.empty())
    for (int32_t& one : composed) one = stored[static_cast<size_t>(one)];
  stored = std::move(composed);
}

}  // namespace millrace
