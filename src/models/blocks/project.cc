#include <array>
#include <cassert>
#include <utility>

#include "models/blocks/blocks.h"
#include "models/blocks/changed_products.h"
#include "models/blocks/part_products.h"
#include "models/blocks/part_scratch.h"

namespace millrace {
namespace {

LinearCall call_of(ForwardContext& context, const LinearPart& part, const LinearSource& source) {
  assert(part.y_stride == part.weight->rows);
  return {{source.id, *part.weight, source.x, part.x.tokens}, part.y, context.kernels(), context.pool()};
}

LinearWrapper* replacement(const ForwardHooks& hooks, const LinearId& id) {
  for (LinearWrapper* wrapper : hooks.wrappers())
    if (wrapper->wraps(id) && wrapper->replaces(id)) return wrapper;
  return nullptr;
}

void replace(const LinearCall& call, const float* bias, LinearWrapper& wrapper) {
  wrapper.apply(call);
  const int64_t rows = call.in.weight.rows;
  for (int64_t t = 0; bias && t < call.in.tokens; ++t)
    for (int64_t r = 0; r < rows; ++r) call.y[t * rows + r] += bias[r];
}

// How a product is computed where there are hooks or weight parts.
enum class Way : uint8_t { plain, changed, factored, dense_sparse, replaced };

// Whether two products have the same number of rows.
bool alike(std::span<const LinearPart> parts, size_t a, size_t b) { return parts[a].x.tokens == parts[b].x.tokens; }

// With hooks or weight parts.
void project_hooked(ForwardContext& context, std::span<LinearPart> parts, std::span<const LinearSource> sources) {
  const ForwardHooks& hooks = context.hooks;
  for (ForwardObserver* observer : hooks.observers())
    for (size_t i = 0; i < parts.size(); ++i)
      if (observer->taps(sources[i].id)) observer->input(call_of(context, parts[i], sources[i]).in);
  const auto way = [&](size_t i) {
    const bool changed = changes_product(*parts[i].weight);
    // The products of a fused output are all needed, whatever takes the place of one of them.
    if (changed && parts[i].weight->parts->output.fused > 0) return Way::changed;
    if (replacement(hooks, sources[i].id)) return Way::replaced;
    if (changed) return Way::changed;
    if (has_sparse_factor(*parts[i].weight)) return Way::dense_sparse;
    return is_factored(*parts[i].weight) ? Way::factored : Way::plain;
  };
  for (size_t first = 0, end = 0; first < parts.size(); first = end) {
    const Way one = way(first);
    const auto joins = [&](size_t i) {  // the products of `first` on, as one job
      if (way(i) != one) return false;
      return one == Way::plain || (one == Way::factored && i - first < kMaxPairs && alike(parts, first, i));
    };
    end = first + (one == Way::changed ? changed_together(parts.subspan(first), sources.subspan(first)) : 1);
    while (end < parts.size() && joins(end)) ++end;
    const std::span some = parts.subspan(first, end - first);
    switch (one) {
      case Way::plain: linear(context.pool(), some, context.shapes()); break;
      case Way::factored: multiply_pairs(context, some); break;
      case Way::changed:
        multiply_changed(context, some, sources[first].x);
        for (size_t i = first; i < end; ++i)
          if (LinearWrapper* const other = replacement(hooks, sources[i].id))
            replace(call_of(context, parts[i], sources[i]), parts[i].bias, *other);
        break;
      case Way::dense_sparse: multiply_dense_sparse(context, parts[first], sources[first].x); break;
      case Way::replaced:
        replace(call_of(context, parts[first], sources[first]), parts[first].bias,
                *replacement(hooks, sources[first].id));
    }
  }
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].weight->parts && !replacement(hooks, sources[i].id)) add_parts(context, parts[i], sources[i].x);
  for (LinearWrapper* wrapper : hooks.wrappers())
    for (size_t i = 0; i < parts.size(); ++i)
      if (wrapper->wraps(sources[i].id) && !wrapper->replaces(sources[i].id))
        wrapper->apply(call_of(context, parts[i], sources[i]));
}

// Biases by a pass of their own behind the products.
void linear_then_bias(ForwardContext& context, std::span<LinearPart> parts) {
  std::array<const float*, 4> biases = {};
  for (size_t i = 0; i < parts.size() && i < biases.size(); ++i) biases[i] = std::exchange(parts[i].bias, nullptr);
  linear(context.pool(), parts, context.shapes());
  for (size_t i = 0; i < parts.size() && i < biases.size(); ++i) {
    const LinearPart& part = parts[i];
    const int64_t width = part.weight->rows;
    if (!biases[i]) continue;
    for_rows(context, part.x.tokens, width, [&](int64_t t) {
      for (int64_t r = 0; r < width; ++r) part.y[t * part.y_stride + r] += biases[i][r];
    });
  }
}

}  // namespace

void project(ForwardContext& context, std::span<LinearPart> parts, std::span<const LinearSource> sources) {
  if (!context.plain_products()) return project_hooked(context, parts, sources);
  if (context.fused().bias) return linear(context.pool(), parts, context.shapes());
  linear_then_bias(context, parts);
}

ActivationRows encode_rows(ForwardContext& context, const Weight& weight, const float* x, int64_t tokens,
                           int64_t cols) {
  const ActivationRows rows = rows_for(weight, tokens, cols, context.encoded.data());
  if (!rows.data) return rows;
  return encode_activations(context.kernels(), context.pool(), rows.kind, x, cols, tokens, cols,
                            context.encoded.data());
}

void project_alike(ForwardContext& context, bool joint, const float* x, const ActivationRows& rows,
                   std::initializer_list<Projection> matrices) {
  const std::shared_ptr<WeightParts>& parts = matrices.begin()->weight.parts;
  if (joint || (parts && parts->output.fused > 0)) return project(context, x, rows, matrices);
  for (const Projection& matrix : matrices) {
    const ActivationRows own = encode_activations(context.kernels(), context.pool(), matrix.weight.format->activation,
                                                  x, rows.cols, rows.tokens, rows.cols, context.encoded.data());
    project(context, x, own, {matrix});
  }
}

void project(ForwardContext& context, const float* x, ActivationRows rows, std::initializer_list<Projection> matrices) {
  std::array<LinearPart, 4> parts;
  std::array<LinearSource, 4> sources;
  assert(matrices.size() <= parts.size());
  size_t count = 0;
  auto run = [&] {
    project(context, {parts.data(), count}, {sources.data(), count});
    count = 0;
  };
  for (const Projection& matrix : matrices) {
    const Activation kind = matrix.weight.format->activation;
    if (kind != rows.kind || (!rows.data && !changes_product(matrix.weight))) {
      if (count > 0) run();  // before its rows are overwritten
      rows = encode_activations(context.kernels(), context.pool(), kind, x, rows.cols, rows.tokens, rows.cols,
                                context.encoded.data());
    }
    sources[count] = {matrix.id, x};
    parts[count++] = {.weight = &matrix.weight,
                      .x = rows,
                      .y = matrix.y,
                      .y_stride = matrix.weight.rows,
                      .bias = matrix.bias.empty() ? nullptr : matrix.bias.data()};
  }
  run();
}

}  // namespace millrace
