#include "models/blocks/early_exit.h"

#include <algorithm>
#include <utility>

#include "exit/exit_gate.h"

namespace millrace {
namespace {

// Sets exits.stops of the batch's rows. Returns the number of rows that stop.
int64_t ask_gates(const ArchSpec& spec, const Batch& batch, int64_t depth, ForwardContext& context) {
  ExitedRows& exits = context.exits;
  exits.stops.assign(static_cast<size_t>(batch.size()), 0);
  const std::span<const float> residual(context.residual.as<float>(), static_cast<size_t>(batch.size() * spec.width));
  for (const BatchSpan& span : batch.spans) {
    if (span.exit < 0) continue;
    const ExitGate& gate = *batch.exits[static_cast<size_t>(span.exit)];
    if (gate.next(depth - 1) != depth) continue;
    gate.stop({.depth = depth,
               .layers = spec.layer_count(),
               .rows = residual.subspan(static_cast<size_t>(span.begin * spec.width),
                                        static_cast<size_t>(span.count * spec.width)),
               .width = spec.width},
              std::span(exits.stops).subspan(static_cast<size_t>(span.begin), static_cast<size_t>(span.count)));
  }
  return std::ranges::count(exits.stops, uint8_t{1});
}

// The rows that stay of a span become as many spans as there are runs of them. `add` receives the first row and the
// number of rows of each.
template <typename Add>
void for_staying(const BatchSpan& span, const std::vector<uint8_t>& stops, const Add& add) {
  for (int64_t t = span.begin, end = span.begin + span.count; t < end;) {
    if (stops[static_cast<size_t>(t)]) {
      ++t;
      continue;
    }
    const int64_t first = t;
    while (t < end && !stops[static_cast<size_t>(t)]) ++t;
    add(first, t - first);
  }
}

// The marks of the rows that are in the last span of `to`, whose first row is row `first` of `from`.
void keep_marks(const Batch& from, const BatchSpan& span, int64_t first, Batch& to) {
  BatchSpan& kept = to.spans.back();
  kept.mark = static_cast<int32_t>(to.marks.size());
  for (const StateMark& mark : from.marks_of(span))
    if (const int64_t row = span.begin + mark.row - first; row >= 0 && row < kept.count)
      to.marks.push_back({row, mark.slot});
  kept.mark_count = static_cast<int32_t>(std::ssize(to.marks) - kept.mark);
}

// Output rows that stop go to the end of the residual, by way of `normed`, which no layer uses now.
void leave(const ArchSpec& spec, const Batch& from, ForwardContext& context, Batch& to) {
  ExitedRows& exits = context.exits;
  float* residual = context.residual.as<float>();
  float* normed = context.normed.as<float>();
  const int64_t width = spec.width;
  const size_t before = exits.left.size();
  size_t staying = 0;
  for (size_t i = 0; i < from.output_rows.size(); ++i) {
    const int32_t row = from.output_rows[i];
    const int32_t output = exits.staying[i];
    if (exits.stops[static_cast<size_t>(row)]) {
      std::copy_n(residual + row * width, width, normed + static_cast<int64_t>(exits.left.size() - before) * width);
      exits.left.push_back(output);
    } else {
      to.output_rows.push_back(static_cast<int32_t>(std::ranges::lower_bound(exits.kept, row) - exits.kept.begin()));
      exits.staying[staying++] = output;
    }
  }
  exits.staying.resize(staying);
  for (size_t i = 0; i < exits.kept.size(); ++i)
    if (const int64_t row = exits.kept[i], at = static_cast<int64_t>(i); row != at)
      std::copy_n(residual + row * width, width, residual + at * width);
  for (size_t i = before; i < exits.left.size(); ++i)
    std::copy_n(normed + static_cast<int64_t>(i - before) * width, width,
                residual + (exits.rows - 1 - static_cast<int64_t>(i)) * width);
}

// Later layers rotate the rows that stay.
void move_rotations(const ArchSpec& spec, ForwardContext& context) {
  float* table = context.rope.as<float>();
  const std::vector<int32_t>& kept = context.exits.kept;
  for (const RopeSpec& rope : spec.ropes) {
    const int64_t values = rope.rotated / 2 * 2;
    for (size_t i = 0; i < kept.size(); ++i)
      if (const int64_t row = kept[i], at = static_cast<int64_t>(i); row != at)
        std::copy_n(table + row * values, values, table + at * values);
    table += context.limits().tokens * values;
  }
}

}  // namespace

int64_t find_exit(const Batch& batch, int64_t depth, int64_t layers) {
  int64_t first = ExitGate::kNever;
  if (batch.exits.empty()) return first;
  for (const BatchSpan& span : batch.spans)
    if (span.exit >= 0) first = std::min(first, batch.exits[static_cast<size_t>(span.exit)]->next(depth));
  return first < layers ? first : ExitGate::kNever;
}

void keep_staying(const Batch& from, const std::vector<uint8_t>& leaves, Batch& to, std::vector<int32_t>& kept) {
  to.clear();
  kept.clear();
  to.block_tables = from.block_tables;
  to.window_tables = from.window_tables;
  to.window_spans.resize(from.window_spans.size());
  to.exits = from.exits;
  if (!from.visibility.empty()) to.copy_visibility(from);
  for (size_t s = 0; s < from.spans.size(); ++s) {
    for_staying(from.spans[s], leaves, [&](int64_t first, int64_t count) {
      const auto keep = [&](BatchSpan span, std::vector<BatchSpan>& spans) {
        span.first_slot += first - span.begin;
        span.begin = to.size();
        span.count = count;
        spans.push_back(span);
      };
      keep(from.spans[s], to.spans);
      keep_marks(from, from.spans[s], first, to);
      for (size_t g = 0; g < from.window_spans.size(); ++g)
        if (!from.window_spans[g].empty()) keep(from.window_spans[g][s], to.window_spans[g]);
      for (int64_t t = first; t < first + count; ++t) {
        kept.push_back(static_cast<int32_t>(t));
        to.tokens.push_back(from.tokens[static_cast<size_t>(t)]);
        to.positions.push_back(from.positions[static_cast<size_t>(t)]);
      }
    });
  }
}

const Batch& exit_rows(const ArchSpec& spec, const Batch& batch, int64_t depth, ForwardContext& context) {
  if (ask_gates(spec, batch, depth, context) == 0) return batch;
  ExitedRows& exits = context.exits;
  if (!std::exchange(exits.parted, true)) {
    exits.rows = batch.size();
    exits.outputs = batch.output_rows;
    exits.staying.resize(exits.outputs.size());
    for (size_t i = 0; i < exits.staying.size(); ++i) exits.staying[i] = static_cast<int32_t>(i);
    for (LinearWrapper* wrapper : context.hooks.wrappers()) wrapper->part();
  }
  Batch& to = exits.batches[&batch == exits.batches.data() ? 1 : 0];
  keep_staying(batch, exits.stops, to, exits.kept);
  leave(spec, batch, context, to);
  move_rotations(spec, context);
  for (LinearWrapper* wrapper : context.hooks.wrappers()) wrapper->keep(exits.kept);
  for (LayerBlock* block : context.hooks.blocks()) block->keep(exits.kept);
  return to;
}

void copy_exited_rows(const ArchSpec& spec, ForwardContext& context) {
  const ExitedRows& exits = context.exits;
  if (!exits.any()) return;
  const auto count = std::ssize(exits.left);
  const int64_t first = (exits.rows - count) * spec.width;
  std::copy_n(context.residual.as<float>() + first, count * spec.width, context.normed.as<float>() + first);
}

const Batch& rejoin_exited(const ArchSpec& spec, const Batch& batch, ForwardContext& context) {
  ExitedRows& exits = context.exits;
  const float* residual = context.residual.as<float>();
  float* ordered = context.normed.as<float>();
  const int64_t width = spec.width;
  // Without a last layer that keeps them alone, the output rows are still among the others.
  for (size_t i = 0; i < exits.staying.size(); ++i)
    std::copy_n(residual + batch.output_rows[i] * width, width, ordered + exits.staying[i] * width);
  for (size_t i = 0; i < exits.left.size(); ++i)
    std::copy_n(residual + (exits.rows - 1 - static_cast<int64_t>(i)) * width, width, ordered + exits.left[i] * width);
  std::swap(context.residual, context.normed);
  Batch& joined = exits.joined;
  joined.clear();
  for (size_t i = 0; i < exits.outputs.size(); ++i) {
    joined.tokens.push_back(0);
    joined.output_rows.push_back(static_cast<int32_t>(i));
  }
  for (LinearWrapper* wrapper : context.hooks.wrappers()) wrapper->rejoin(exits.outputs);
  return joined;
}

}  // namespace millrace
