#include "models/blocks/part_products.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr int64_t kPartRows = 64;           // of a batch, processed together
constexpr int64_t kSparseRows = 64;         // of a sparse matrix, multiplied by one thread at a time
constexpr int64_t kWorthThreads = 1 << 13;  // multiply-adds of a sparse product

struct PartScratch {
  float* changed = nullptr;    // [kPartRows, inputs]
  float* unordered = nullptr;  // [kPartRows, inputs]
  float* inner = nullptr;      // [kPartRows, rank]
  float* product = nullptr;    // [kPartRows, rows]
  uint8_t* rounded = nullptr;  // kPartRows rows of inputs, cols or rank values
};

int64_t widest_row(int64_t cols) {
  int64_t bytes = 0;
  for (Activation kind : kActivations) bytes = std::max(bytes, activation_row_bytes(kind, cols));
  return bytes;
}

int64_t floats(int64_t count) { return align64(kPartRows * count * 4); }

PartScratch divide(const PartSizes& sizes, uint8_t* buffer) {
  PartScratch out;
  const auto take = [&](int64_t count) {
    auto* part = reinterpret_cast<float*>(buffer);
    buffer += floats(count);
    return part;
  };
  out.changed = take(sizes.inputs);
  out.unordered = take(sizes.inputs);
  out.inner = take(sizes.rank);
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

void add_low_rank(ForwardContext& context, const WeightParts& parts, const float* x, int64_t rows, float* y) {
  const KernelTable& kernels = context.kernels();
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  const Weight &a = parts.low_rank_a, &b = parts.low_rank_b;
  const ActivationRows in =
      encode_activations(kernels, context.pool(), a.format->activation, x, a.cols, rows, a.cols, scratch.rounded);
  linear(context.pool(), a, in, scratch.inner, a.rows);
  const ActivationRows low = encode_activations(kernels, context.pool(), b.format->activation, scratch.inner, b.cols,
                                                rows, b.cols, scratch.rounded);
  linear(context.pool(), b, low, scratch.product, b.rows);
  for_rows(context, rows, b.rows,
           [&](int64_t t) { kernels.add(scratch.product + t * b.rows, y + t * b.rows, b.rows); });
}

void add_sparse(ForwardContext& context, const SparseMatrix& sparse, const float* x, int64_t tokens, int64_t cols,
                int64_t rows, float* y) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t r = begin; r < end; ++r) {
        float sum = 0;
        for (int64_t i = sparse.row_begin[r]; i < sparse.row_begin[r + 1]; ++i)
          sum += sparse.values[i] * x[t * cols + sparse.columns[i]];
        y[t * rows + r] += sum;
      }
  };
  if (tokens * sparse.row_begin.back() < kWorthThreads) return run(0, rows);
  context.pool().parallel_for((rows + kSparseRows - 1) / kSparseRows,
                              [&](int64_t i, int) { run(i * kSparseRows, std::min(rows, (i + 1) * kSparseRows)); });
}

}  // namespace

int64_t part_scratch_bytes(const PartSizes& sizes) {
  if (sizes.inputs == 0 && sizes.rank == 0) return 0;
  return 2 * floats(sizes.inputs) + floats(sizes.rank) + floats(sizes.rows) +
         kPartRows * widest_row(std::max({sizes.inputs, sizes.cols, sizes.rank}));
}

void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out) {
  float* row = change.order.empty() ? out : scratch;
  for (int64_t c = 0; c < cols; ++c) row[c] = change.scale.empty() ? x[c] : x[c] * change.scale[c];
  if (change.hadamard > 0) hadamard(row, cols, change.hadamard);
  for (int64_t c = 0; c < std::ssize(change.order); ++c) out[c] = scratch[change.order[c]];
}

void multiply_changed(ForwardContext& context, const LinearPart& part, const float* x) {
  const Weight& weight = *part.weight;
  const int64_t cols = weight.cols;
  const PartScratch scratch = divide(context.part_sizes(), context.parts.data());
  for (int64_t first = 0; first < part.x.tokens; first += kPartRows) {
    const int64_t tokens = std::min(kPartRows, part.x.tokens - first);
    const ActivationRows rows = activation_rows(weight.format->activation, tokens, cols, scratch.rounded);
    for_rows(context, tokens, 4 * cols, [&](int64_t t) {
      float* changed = scratch.changed + t * cols;
      change_input(weight.parts->input, x + (first + t) * cols, cols, scratch.unordered + t * cols, changed);
      encode_row(context.kernels(), rows, t, changed, scratch.rounded);
    });
    LinearPart some{.weight = &weight,
                    .x = rows,
                    .y = part.y + first * part.y_stride,
                    .y_stride = part.y_stride,
                    .bias = part.bias};
    linear(context.pool(), {&some, 1});
  }
}

void add_parts(ForwardContext& context, const LinearPart& part, const float* x) {
  const WeightParts& parts = *part.weight->parts;
  const int64_t cols = part.weight->cols, rows = part.weight->rows;
  for (int64_t first = 0; parts.low_rank_a.present() && first < part.x.tokens; first += kPartRows)
    add_low_rank(context, parts, x + first * cols, std::min(kPartRows, part.x.tokens - first), part.y + first * rows);
  if (!parts.sparse.empty()) add_sparse(context, parts.sparse, x, part.x.tokens, cols, rows, part.y);
}

}  // namespace millrace
