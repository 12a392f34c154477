#include "models/blocks/part_products.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/input_rounding.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr int64_t kPartRows = 64;           // of a batch, processed together
constexpr int64_t kSparseRows = 64;         // of a sparse matrix, multiplied by one thread at a time
constexpr int64_t kWorthThreads = 1 << 13;  // multiply-adds of a sparse product

struct PartScratch {
  float* changed = nullptr;    // [kPartRows, inputs]
  float* unordered = nullptr;  // [kPartRows, inputs]
  float* inner = nullptr;    // [kPartRows, rank], or of each of kMostPairs factored matrices [kPartRows, factored_rank]
  float* product = nullptr;  // [kPartRows, rows]
  uint8_t* rounded = nullptr;  // kPartRows rows of inputs, cols or rank values; of factored matrices as `inner`
};

int64_t widest_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

int64_t floats(int64_t count) { return align64(kPartRows * count * 4); }

int64_t inner_floats(const PartSizes& sizes) {
  return std::max(floats(sizes.rank), static_cast<int64_t>(kMostPairs) * floats(sizes.factored_rank));
}

PartScratch divide(const PartSizes& sizes, uint8_t* buffer) {
  PartScratch out;
  const auto take = [&](int64_t count) {
    auto* part = reinterpret_cast<float*>(buffer);
    buffer += floats(count);
    return part;
  };
  out.changed = take(sizes.inputs);
  out.unordered = take(sizes.inputs);
  out.inner = reinterpret_cast<float*>(buffer);
  buffer += inner_floats(sizes);
  out.product = take(sizes.rows);
  out.rounded = buffer;
  return out;
}

// In place, times 1 / sqrt(block): the transform is its own inverse.
void hadamard(float* x, int64_t cols, int64_t block) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (float* part = x; part < x + cols; part += block) {
    for (int64_t half = 1; half < block; half *= 2)
      for (int64_t i = 0; i < block; i += 2 * half)
        for (int64_t j = i; j < i + half; ++j) {
          const float a = part[j], b = part[j + half];
          part[j] = a + b;
          part[j + half] = a - b;
        }
    for (int64_t j = 0; j < block; ++j) part[j] *= scale;
  }
}

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
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  const Weight& a = parts.low_rank_a;
  const ActivationRows in = encode_activations(context.kernels(), context.pool(), a.format->activation, x, a.cols, rows,
                                               a.cols, scratch.rounded);
  linear(context.pool(), a, in, scratch.inner, a.rows);
  add_product(context, scratch, parts.low_rank_b, rows, y);
}

void add_columns(ForwardContext& context, const WeightParts& parts, const float* x, int64_t cols, int64_t rows,
                 float* y) {
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  const int64_t count = std::ssize(parts.columns);
  for_rows(context, rows, count, [&](int64_t t) {
    for (int64_t i = 0; i < count; ++i) scratch.inner[t * count + i] = x[t * cols + parts.columns[i]];
  });
  add_product(context, scratch, parts.column_weights, rows, y);
}

void add_sparse(ForwardContext& context, const SparseMatrix& sparse, const float* x, int64_t tokens, int64_t cols,
                int64_t rows, float* y) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) add_sparse_rows(sparse, x + t * cols, begin, end, y + t * rows);
  };
  if (tokens * sparse.row_begin.back() < kWorthThreads) return run(0, rows);
  context.pool().parallel_for((rows + kSparseRows - 1) / kSparseRows,
                              [&](int64_t i, int) { run(i * kSparseRows, std::min(rows, (i + 1) * kSparseRows)); });
}

}  // namespace

int64_t part_scratch_bytes(const PartSizes& sizes) {
  if (sizes.inputs == 0 && sizes.rank == 0) return 0;
  const int64_t row = std::max(widest_row(std::max({sizes.inputs, sizes.cols, sizes.rank})),
                               static_cast<int64_t>(kMostPairs) * align64(widest_row(sizes.factored_rank)));
  return 2 * floats(sizes.inputs) + inner_floats(sizes) + floats(sizes.rows) + kPartRows * row;
}

void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out) {
  float* row = change.order.empty() ? out : scratch;
  for (int64_t c = 0; c < cols; ++c) {
    const float from = change.shift.empty() ? x[c] : x[c] - change.shift[c];
    row[c] = change.scale.empty() ? from : from * change.scale[c];
  }
  if (change.hadamard > 0) hadamard(row, cols, change.hadamard);
  for (int64_t c = 0; c < std::ssize(change.order); ++c) out[c] = scratch[change.order[c]];
}

void change_output(const OutputChange& change, float* y, int64_t rows) {
  if (change.hadamard > 0) hadamard(y, rows, change.hadamard);
  for (size_t r = 0; r < change.scale.size(); ++r) y[r] *= change.scale[r];
}

void multiply_changed(ForwardContext& context, const LinearPart& part, const float* x) {
  const Weight& weight = *part.weight;
  const int64_t cols = weight.cols;
  const bool turned = !weight.parts->output.empty();
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  for (int64_t first = 0; first < part.x.tokens; first += kPartRows) {
    const int64_t tokens = std::min(kPartRows, part.x.tokens - first);
    const ActivationRows rows = activation_rows(weight.format->activation, tokens, cols, scratch.rounded);
    for_rows(context, tokens, 4 * cols, [&](int64_t t) {
      float* changed = scratch.changed + t * cols;
      change_input(weight.parts->input, x + (first + t) * cols, cols, scratch.unordered + t * cols, changed);
      encode_rounded_row(context.kernels(), rows.kind, weight.parts->input.rounding, cols, changed,
                         scratch.rounded + t * rows.stride);
    });
    LinearPart some{.weight = &weight,
                    .x = rows,
                    .y = part.y + first * part.y_stride,
                    .y_stride = part.y_stride,
                    .bias = turned ? nullptr : part.bias};
    linear(context.pool(), {&some, 1});
    if (!turned) continue;
    for_rows(context, tokens, 4 * weight.rows, [&](int64_t t) {
      float* y = some.y + t * some.y_stride;
      change_output(weight.parts->output, y, weight.rows);
      if (part.bias) context.kernels().add(part.bias, y, weight.rows);
    });
  }
}

void multiply_pairs(ForwardContext& context, std::span<const LinearPart> parts) {
  const KernelTable& kernels = context.kernels();
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  const int64_t rank_floats = floats(context.part_sizes().factored_rank) / 4;
  const int64_t rank_bytes = kPartRows * align64(widest_row(context.part_sizes().factored_rank));
  const int64_t tokens = parts.front().x.tokens;
  std::array<LinearPart, kMostPairs> as, bs;
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
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
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
