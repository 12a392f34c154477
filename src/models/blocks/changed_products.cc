#include "models/blocks/changed_products.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/input_rounding.h"
#include "kernels/part_kernels.h"
#include "models/blocks/blocks.h"
#include "models/blocks/part_scratch.h"
#include "tensor/hadamard.h"

namespace millrace {
namespace {

// Blocks of x mixed by a Hadamard matrix M, times 1 / sqrt(outer): out = M x, or M^T x if `transposed`.
void mix_rows(const PartKernels& kernels, const float* x, int64_t n, int64_t block, int64_t outer, bool transposed,
              float* out) {
  MixedBlocks mixed{.block = block,
                    .count = outer,
                    .matrix = hadamard_matrix(outer).data(),
                    .row_step = transposed ? 1 : outer,
                    .column_step = transposed ? outer : 1,
                    .scale = 1.0f / std::sqrt(static_cast<float>(outer))};
  for (int64_t first = 0; first < n; first += outer * block) {
    mixed.x = x + first;
    mixed.out = out + first;
    kernels.mix_blocks(mixed);
  }
}

// H y of `n` rows, in place; `scratch` [n], if blocks are mixed.
void transform_output(const PartKernels& kernels, const OutputChange& change, float* y, int64_t n, float* scratch) {
  if (change.hadamard == 0) return;
  kernels.hadamard(y, n, change.hadamard);
  if (change.outer == 1) return;
  mix_rows(kernels, y, n, change.hadamard, change.outer, false, scratch);
  std::copy_n(scratch, n, y);
}

void scale_output(const PartKernels& kernels, const LinearPart& part, float* y) {
  const std::vector<float>& scale = part.weight->parts->output.scale;
  if (!scale.empty()) kernels.shift_scale(y, nullptr, scale.data(), std::ssize(scale), y);
}

// The products from the first on whose outputs are transformed as one.
size_t fused_together(std::span<const LinearPart> parts) {
  const int64_t fused = parts[0].weight->parts->output.fused;
  size_t count = 1;
  for (int64_t rows = parts[0].weight->rows; rows < fused && count < parts.size(); ++count) {
    assert(parts[count].weight->parts && parts[count].weight->parts->output.fused == fused);
    rows += parts[count].weight->rows;
  }
  return count;
}

// o(y) of the products of one token, whose matrices are the rows of a fused one. `all`, `scratch`: as many rows.
void change_fused_output(const PartKernels& kernels, std::span<const LinearPart> parts, int64_t token, float* all,
                         float* scratch) {
  const OutputChange& change = parts.front().weight->parts->output;
  const auto rows = [&](const LinearPart& part) { return part.y + token * part.y_stride; };
  for (const LinearPart& part : parts)
    std::copy_n(rows(part), part.weight->rows, all + part.weight->parts->output.begin);
  transform_output(kernels, change, all, change.fused, scratch);
  for (const LinearPart& part : parts) {
    std::copy_n(all + part.weight->parts->output.begin, part.weight->rows, rows(part));
    scale_output(kernels, part, rows(part));
  }
}

// o(y) + bias of all products, of one token.
void change_outputs(const KernelTable& table, std::span<const LinearPart> parts, std::span<const float* const> biases,
                    int64_t token, float* all, float* scratch) {
  const PartKernels& kernels = part_kernels(table.isa);
  for (size_t first = 0, end = 0; first < parts.size(); first = end) {
    const LinearPart& part = parts[first];
    const OutputChange& change = part.weight->parts->output;
    end = first + fused_together(parts.subspan(first));
    if (change.empty()) continue;
    if (change.fused > 0) {
      change_fused_output(kernels, parts.subspan(first, end - first), token, all, scratch);
    } else {
      float* const y = part.y + token * part.y_stride;
      transform_output(kernels, change, y, part.weight->rows, scratch);
      scale_output(kernels, part, y);
    }
    for (size_t i = first; i < end; ++i)
      if (biases[i]) table.add(biases[i], parts[i].y + token * parts[i].y_stride, parts[i].weight->rows);
  }
}

// Compared as bytes, in each step.
bool same_values(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool change_alike(const InputChange& a, const InputChange& b) {
  return a.hadamard == b.hadamard && a.outer == b.outer && a.rounding == b.rounding && same_values(a.shift, b.shift) &&
         same_values(a.scale, b.scale) && a.order == b.order;
}

}  // namespace

void change_input(const PartKernels& kernels, const InputChange& change, const float* x, int64_t cols, float* scratch,
                  float* out) {
  float* row = change.order.empty() && change.outer == 1 ? out : scratch;
  const float* from = x;  // in an order, of values that are not changed otherwise
  const bool ordered_only = change.shift.empty() && change.scale.empty() && change.hadamard == 0;
  if (!ordered_only || change.order.empty()) {
    kernels.shift_scale(x, change.shift.empty() ? nullptr : change.shift.data(),
                        change.scale.empty() ? nullptr : change.scale.data(), cols, row);
    from = row;
  }
  if (change.hadamard > 0) kernels.hadamard(row, cols, change.hadamard);
  if (change.outer > 1) mix_rows(kernels, row, cols, change.hadamard, change.outer, true, out);
  for (int64_t c = 0; c < std::ssize(change.order); ++c) out[c] = from[change.order[c]];
}

void change_input(const InputChange& change, const float* x, int64_t cols, float* scratch, float* out) {
  change_input(part_kernels(Isa::ref), change, x, cols, scratch, out);
}

void transform_rows(int64_t block, float* values, int64_t n) {
  if (block > 0) part_kernels(Isa::ref).hadamard(values, n, block);
}

size_t changed_together(std::span<const LinearPart> parts, std::span<const LinearSource> sources) {
  const auto alike = [&](size_t i) {
    const LinearPart &a = parts[0], &b = parts[i];
    return changes_product(*b.weight) && sources[i].x == sources[0].x && b.x.tokens == a.x.tokens &&
           b.weight->cols == a.weight->cols && b.weight->format->activation == a.weight->format->activation &&
           change_alike(a.weight->parts->input, b.weight->parts->input);
  };
  size_t count = fused_together(parts);
  assert(count <= kMaxPairs);
  while (count < parts.size() && alike(count)) {
    const size_t more = fused_together(parts.subspan(count));
    if (count + more > kMaxPairs) break;
    count += more;
  }
  return count;
}

void multiply_changed(ForwardContext& context, std::span<const LinearPart> parts, const float* x) {
  const KernelTable& table = context.kernels();
  const PartKernels& kernels = part_kernels(table.isa);
  const Weight& weight = *parts.front().weight;
  const int64_t cols = weight.cols, all_tokens = parts.front().x.tokens;
  const PartScratch scratch = divide_part_scratch(context.part_sizes(), context.parts.data());
  std::array<LinearPart, kMaxPairs> all;
  std::array<const float*, kMaxPairs> biases = {};
  const std::span some(all.data(), parts.size());
  int64_t outputs = 0;  // the widest that are changed, and how many
  int64_t changed = 0;
  for (const LinearPart& part : parts) {
    const OutputChange& output = part.weight->parts->output;
    if (output.empty()) continue;
    outputs = std::max({outputs, output.fused, part.weight->rows});
    changed += part.weight->rows;
  }
  // body(t, i) of each token, i below kPartRows.
  const auto some_at_a_time = [&](int64_t tokens, int64_t values, const auto& body) {
    for (int64_t begin = 0; begin < tokens; begin += kPartRows)
      for_rows(context, std::min(kPartRows, tokens - begin), values, [&](int64_t i) { body(begin + i, i); });
  };
  for (int64_t first = 0; first < all_tokens; first += kChangedRows) {
    const int64_t tokens = std::min(kChangedRows, all_tokens - first);
    const ActivationRows rows = activation_rows(weight.format->activation, tokens, cols, scratch.rounded);
    some_at_a_time(tokens, 4 * cols, [&](int64_t t, int64_t i) {
      float* row = scratch.changed + i * cols;
      change_input(kernels, weight.parts->input, x + (first + t) * cols, cols, scratch.unordered + i * cols, row);
      encode_rounded_row(table, rows.kind, weight.parts->input.rounding, cols, row, scratch.rounded + t * rows.stride);
    });
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool turned = !parts[i].weight->parts->output.empty();
      biases[i] = turned ? parts[i].bias : nullptr;
      some[i] = {.weight = parts[i].weight,
                 .x = rows,
                 .y = parts[i].y + first * parts[i].y_stride,
                 .y_stride = parts[i].y_stride,
                 .bias = turned ? nullptr : parts[i].bias};
    }
    linear(context.pool(), some, context.shapes());
    if (outputs == 0) continue;
    some_at_a_time(tokens, 4 * changed, [&](int64_t t, int64_t i) {
      change_outputs(table, some, biases, t, scratch.changed + i * outputs, scratch.unordered + i * outputs);
    });
  }
}

}  // namespace millrace
