#include "models/blocks/part_products.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "kernels/activation.h"
#include "kernels/input_rounding.h"
#include "models/blocks/blocks.h"
#include "tensor/hadamard.h"

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

// Blocks of x [outer, block] mixed by a Hadamard matrix M, times 1 / sqrt(outer): out = M x, or M^T x if `transposed`.
void mix_blocks(const float* x, int64_t n, int64_t block, int64_t outer, bool transposed, float* out) {
  const float* const m = hadamard_matrix(outer).data();
  const float scale = 1.0f / std::sqrt(static_cast<float>(outer));
  std::fill_n(out, n, 0.0f);
  for (int64_t first = 0; first < n; first += outer * block)
    for (int64_t a = 0; a < outer; ++a) {
      float* const to = out + first + a * block;
      for (int64_t b = 0; b < outer; ++b) {
        const float sign = transposed ? m[b * outer + a] : m[a * outer + b];
        const float* const from = x + first + b * block;
        for (int64_t j = 0; j < block; ++j) to[j] += sign * from[j];
      }
      for (int64_t j = 0; j < block; ++j) to[j] *= scale;
    }
}

// H y of `n` rows, in place; `scratch` [n], if blocks are mixed.
void transform_output(const OutputChange& change, float* y, int64_t n, float* scratch) {
  if (change.hadamard == 0) return;
  hadamard(y, n, change.hadamard);
  if (change.outer == 1) return;
  mix_blocks(y, n, change.hadamard, change.outer, false, scratch);
  std::copy_n(scratch, n, y);
}

void scale_output(const LinearPart& part, float* y) {
  const std::vector<float>& scale = part.weight->parts->output.scale;
  for (size_t r = 0; r < scale.size(); ++r) y[r] *= scale[r];
}

// o(y) of the products of one token, whose matrices are the rows of a fused one.
void change_fused_output(std::span<const LinearPart> parts, int64_t token, float* all, float* scratch) {
  const OutputChange& change = parts.front().weight->parts->output;
  const auto rows = [&](const LinearPart& part) { return part.y + token * part.y_stride; };
  for (const LinearPart& part : parts)
    std::copy_n(rows(part), part.weight->rows, all + part.weight->parts->output.begin);
  transform_output(change, all, change.fused, scratch);
  for (const LinearPart& part : parts) {
    std::copy_n(all + part.weight->parts->output.begin, part.weight->rows, rows(part));
    scale_output(part, rows(part));
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
  float* row = change.order.empty() && change.outer == 1 ? out : scratch;
  for (int64_t c = 0; c < cols; ++c) {
    const float from = change.shift.empty() ? x[c] : x[c] - change.shift[c];
    row[c] = change.scale.empty() ? from : from * change.scale[c];
  }
  if (change.hadamard > 0) hadamard(row, cols, change.hadamard);
  if (change.outer > 1) mix_blocks(row, cols, change.hadamard, change.outer, true, out);
  for (int64_t c = 0; c < std::ssize(change.order); ++c) out[c] = scratch[change.order[c]];
}

void transform_rows(int64_t block, float* values, int64_t n) {
  if (block > 0) hadamard(values, n, block);
}

size_t changed_together(std::span<const LinearPart> parts) {
  const int64_t fused = parts[0].weight->parts->output.fused;
  size_t count = 1;
  for (int64_t rows = parts[0].weight->rows; rows < fused && count < parts.size(); ++count) {
    assert(parts[count].weight->parts && parts[count].weight->parts->output.fused == fused);
    rows += parts[count].weight->rows;
  }
  assert(count <= kMostPairs);
  return count;
}

void multiply_changed(ForwardContext& context, std::span<const LinearPart> parts, const float* x) {
  const Weight& weight = *parts.front().weight;
  const OutputChange& output = weight.parts->output;
  const int64_t cols = weight.cols, all_tokens = parts.front().x.tokens;
  const int64_t outputs = std::max(output.fused, weight.rows);
  const bool turned = !output.empty();
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  std::array<LinearPart, kMostPairs> all;
  const std::span some(all.data(), parts.size());
  for (int64_t first = 0; first < all_tokens; first += kPartRows) {
    const int64_t tokens = std::min(kPartRows, all_tokens - first);
    const ActivationRows rows = activation_rows(weight.format->activation, tokens, cols, scratch.rounded);
    for_rows(context, tokens, 4 * cols, [&](int64_t t) {
      float* changed = scratch.changed + t * cols;
      change_input(weight.parts->input, x + (first + t) * cols, cols, scratch.unordered + t * cols, changed);
      encode_rounded_row(context.kernels(), rows.kind, weight.parts->input.rounding, cols, changed,
                         scratch.rounded + t * rows.stride);
    });
    for (size_t i = 0; i < parts.size(); ++i)
      some[i] = {.weight = parts[i].weight,
                 .x = rows,
                 .y = parts[i].y + first * parts[i].y_stride,
                 .y_stride = parts[i].y_stride,
                 .bias = turned ? nullptr : parts[i].bias};
    linear(context.pool(), some);
    if (!turned) continue;
    for_rows(context, tokens, 4 * outputs, [&](int64_t t) {
      float *whole = scratch.changed + t * outputs, *mixed = scratch.unordered + t * outputs;
      float* const y = some[0].y + t * some[0].y_stride;
      if (output.fused > 0) {
        change_fused_output(some, t, whole, mixed);
      } else {
        transform_output(output, y, outputs, mixed);
        scale_output(some[0], y);
      }
      for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].bias) context.kernels().add(parts[i].bias, some[i].y + t * some[i].y_stride, some[i].weight->rows);
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
