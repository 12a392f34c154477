#include "models/blocks/part_products.h"

#include <algorithm>
#include <array>

#include "kernels/part_kernels.h"
#include "models/blocks/blocks.h"
#include "models/blocks/part_scratch.h"

namespace millrace {
namespace {

constexpr int64_t kSparseRows = 64;         // of a sparse matrix, multiplied by one thread at a time
constexpr int64_t kTurnedCols = 256;        // of inputs, likewise; a multiple of 4
constexpr int64_t kWorthThreads = 1 << 13;  // multiply-adds of a sparse product

// y += M inner.
void add_product(ForwardContext& context, const PartScratch& scratch, const Weight& m, int64_t rows, float* y) {
  const KernelTable& kernels = context.kernels();
  const ActivationRows in = encode_activations(kernels, context.pool(), m.format->activation, scratch.inner, m.cols,
                                               rows, m.cols, scratch.rounded);
  linear(context.pool(), m, in, scratch.product, m.rows);
  for_rows(context, rows, m.rows,
           [&](int64_t t) { kernels.add(scratch.product + t * m.rows, y + t * m.rows, m.rows); });
}

void add_low_rank(ForwardContext& context, const WeightParts& parts, const float* x, int64_t rows, float* y) {
  const PartScratch scratch = divide_part_scratch(context.part_sizes(), context.parts.data());
  const Weight& a = parts.low_rank_a;
  const ActivationRows in = encode_activations(context.kernels(), context.pool(), a.format->activation, x, a.cols, rows,
                                               a.cols, scratch.rounded);
  linear(context.pool(), a, in, scratch.inner, a.rows);
  add_product(context, scratch, parts.low_rank_b, rows, y);
}

void add_columns(ForwardContext& context, const WeightParts& parts, const float* x, int64_t cols, int64_t rows,
                 float* y) {
  const PartScratch scratch = divide_part_scratch(context.part_sizes(), context.parts.data());
  const int64_t count = std::ssize(parts.columns);
  for_rows(context, rows, count, [&](int64_t t) {
    for (int64_t i = 0; i < count; ++i) scratch.inner[t * count + i] = x[t * cols + parts.columns[i]];
  });
  add_product(context, scratch, parts.column_weights, rows, y);
}

// y += S x of at most kPartRows tokens, in columns.
void add_sparse_turned(ForwardContext& context, const SparseMatrix& sparse, const float* x, int64_t tokens,
                       int64_t cols, int64_t rows, float* y) {
  const PartKernels& kernels = part_kernels(context.kernels().isa);
  float* const turned = divide_part_scratch(context.part_sizes(), context.parts.data()).turned;
  const int64_t width = turned_width(tokens);
  context.pool().parallel_for((cols + kTurnedCols - 1) / kTurnedCols, [&](int64_t i, int) {
    const int64_t begin = i * kTurnedCols, count = std::min(kTurnedCols, cols - begin);
    kernels.turn_tokens(x + begin, cols, tokens, count, turned + begin * width);
  });
  context.pool().parallel_for((rows + kSparseRows - 1) / kSparseRows, [&](int64_t i, int) {
    const int64_t begin = i * kSparseRows;
    kernels.add_sparse({.row_begin = sparse.row_begin.data() + begin,
                        .columns = sparse.columns.data(),
                        .values = sparse.values.data(),
                        .rows = std::min(kSparseRows, rows - begin),
                        .turned = turned,
                        .tokens = tokens,
                        .y = y + begin,
                        .y_stride = rows});
  });
}

void add_sparse(ForwardContext& context, const SparseMatrix& sparse, const float* x, int64_t tokens, int64_t cols,
                int64_t rows, float* y) {
  static_assert(kPartRows <= kTurnedTokens);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) add_sparse_rows(sparse, x + t * cols, begin, end, y + t * rows);
  };
  if (tokens * sparse.row_begin.back() < kWorthThreads) return run(0, rows);
  if (tokens < kTurnedFrom)
    return context.pool().parallel_for((rows + kSparseRows - 1) / kSparseRows, [&](int64_t i, int) {
      run(i * kSparseRows, std::min(rows, (i + 1) * kSparseRows));
    });
  for (int64_t first = 0; first < tokens; first += kPartRows)
    add_sparse_turned(context, sparse, x + first * cols, std::min(kPartRows, tokens - first), cols, rows,
                      y + first * rows);
}

}  // namespace

void multiply_pairs(ForwardContext& context, std::span<const LinearPart> parts) {
  const KernelTable& kernels = context.kernels();
  const PartScratch scratch = divide_part_scratch(context.part_sizes(), context.parts.data());
  const int64_t rank_floats = part_rows_bytes(context.part_sizes().factored_rank) / 4;
  const int64_t rank_bytes = kPartRows * align64(widest_rounded_row(context.part_sizes().factored_rank));
  const int64_t tokens = parts.front().x.tokens;
  std::array<LinearPart, kMaxPairs> as, bs;
  const std::span a_parts(as.data(), parts.size()), b_parts(bs.data(), parts.size());
  for (int64_t first = 0; first < tokens; first += kPartRows) {
    const int64_t count = std::min(kPartRows, tokens - first);
    int64_t values = 0;  // of a row that are rounded between the products
    for (size_t i = 0; i < parts.size(); ++i) {
      const LinearPart& part = parts[i];
      const Weight &a = part.weight->parts->low_rank_a, &b = part.weight->parts->low_rank_b;
      ActivationRows in = part.x;
      in.data += first * in.stride;
      in.tokens = count;
      a_parts[i] = {
          .weight = &a, .x = in, .y = scratch.inner + static_cast<int64_t>(i) * rank_floats, .y_stride = a.rows};
      b_parts[i] = {.weight = &b,
                    .x = activation_rows(b.format->activation, count, b.cols,
                                         scratch.rounded + static_cast<int64_t>(i) * rank_bytes),
                    .y = part.y + first * part.y_stride,
                    .y_stride = part.y_stride,
                    .bias = part.bias};
      values += a.rows;
    }
    linear(context.pool(), a_parts, context.shapes());
    for_rows(context, count, values, [&](int64_t t) {
      for (size_t i = 0; i < parts.size(); ++i)
        encode_row(kernels, b_parts[i].x, t, a_parts[i].y + t * a_parts[i].y_stride,
                   scratch.rounded + static_cast<int64_t>(i) * rank_bytes);
    });
    linear(context.pool(), b_parts, context.shapes());
  }
}

void multiply_dense_sparse(ForwardContext& context, const LinearPart& part, const float* x) {
  const WeightParts& parts = *part.weight->parts;
  const Weight& b = parts.low_rank_b;
  const PartScratch scratch = divide_part_scratch(context.part_sizes(), context.parts.data());
  const int64_t cols = part.weight->cols, rank = b.cols;
  for (int64_t first = 0; first < part.x.tokens; first += kPartRows) {
    const int64_t count = std::min(kPartRows, part.x.tokens - first);
    std::fill_n(scratch.inner, count * rank, 0.0f);
    add_sparse(context, parts.sparse, x + first * cols, count, cols, rank, scratch.inner);
    LinearPart some{.weight = &b,
                    .x = encode_activations(context.kernels(), context.pool(), b.format->activation, scratch.inner,
                                            rank, count, rank, scratch.rounded),
                    .y = part.y + first * part.y_stride,
                    .y_stride = part.y_stride,
                    .bias = part.bias};
    linear(context.pool(), {&some, 1}, context.shapes());
  }
}

void add_sparse_rows(const SparseMatrix& sparse, const float* x, int64_t begin, int64_t end, float* y) {
  for (int64_t r = begin; r < end; ++r) {
    float sum = 0;
    for (int64_t i = sparse.row_begin[r]; i < sparse.row_begin[r + 1]; ++i)
      sum += sparse.values[i] * x[sparse.columns[i]];
    y[r] += sum;
  }
}

void add_parts(ForwardContext& context, const LinearPart& part, const float* x) {
  const WeightParts& parts = *part.weight->parts;
  const int64_t cols = part.weight->cols, rows = part.weight->rows;
  const bool pair = parts.low_rank_a.present() && !parts.factored;
  for (int64_t first = 0; pair && first < part.x.tokens; first += kPartRows)
    add_low_rank(context, parts, x + first * cols, std::min(kPartRows, part.x.tokens - first), part.y + first * rows);
  for (int64_t first = 0; !parts.columns.empty() && first < part.x.tokens; first += kPartRows)
    add_columns(context, parts, x + first * cols, cols, std::min(kPartRows, part.x.tokens - first),
                part.y + first * rows);
  if (!parts.bias.empty())
    for_rows(context, part.x.tokens, rows,
             [&](int64_t t) { context.kernels().add(parts.bias.data(), part.y + t * rows, rows); });
  if (!parts.sparse.empty() && !has_sparse_factor(*part.weight))
    add_sparse(context, parts.sparse, x, part.x.tokens, cols, rows, part.y);
}

}  // namespace millrace
