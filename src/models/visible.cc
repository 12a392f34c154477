#include "models/visible.h"

#include <fmt/format.h>

#include <cassert>

#include "models/layer_mixers.h"

namespace millrace {
namespace {

// A token's path is its parent's and itself.
void add_tree(std::span<const int32_t> parents, Visibility& v, Batch& batch) {
  const BatchSpan& span = batch.spans.back();
  const int64_t tokens = std::ssize(parents);
  assert(tokens <= kMaxTreeTokens);
  v.tree_slot = span.first_slot + span.count - tokens;
  v.tree_tokens = tokens;
  v.ancestors = std::ssize(batch.ancestors);
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t parent = parents[static_cast<size_t>(i)];
    assert(parent >= -1 && parent < i);
    const uint64_t path = parent < 0 ? 0 : batch.ancestors[static_cast<size_t>(v.ancestors + parent)];
    batch.ancestors.push_back(path | uint64_t{1} << i);
  }
}

void add_block_lists(std::span<const std::span<const int32_t>> lists, Visibility& v, Batch& batch) {
  v.lists = std::ssize(batch.block_lists);
  v.list_count = std::ssize(lists);
  for (const auto& list : lists) {
    batch.block_lists.push_back({std::ssize(batch.listed_blocks), std::ssize(list)});
    batch.listed_blocks.insert(batch.listed_blocks.end(), list.begin(), list.end());
  }
}

void add_positions(std::span<const int32_t> first, Visibility& v, Batch& batch) {
  const BatchSpan& span = batch.spans.back();
  const auto own = batch.positions.begin() + span.begin;
  v.positions = std::ssize(batch.slot_positions);
  v.position_count = span.first_slot + span.count;
  batch.slot_positions.insert(batch.slot_positions.end(), first.begin(), first.end());
  for (int64_t slot = std::ssize(first); slot < span.first_slot; ++slot)
    batch.slot_positions.push_back(static_cast<int32_t>(*own - (span.first_slot - slot)));
  batch.slot_positions.insert(batch.slot_positions.end(), own, own + span.count);
}

}  // namespace

void add_visibility(const VisibleKeys& visible, Batch& batch) {
  Visibility v;
  if (!visible.parents.empty()) add_tree(visible.parents, v, batch);
  v.documents = visible.documents;
  v.whole = visible.whole;
  if (!visible.segments.empty()) {
    v.segments = std::ssize(batch.segments);
    v.segment_count = std::ssize(visible.segments) / visible.segment_heads;
    v.segment_heads = visible.segment_heads;
    batch.segments.insert(batch.segments.end(), visible.segments.begin(), visible.segments.end());
  }
  if (!visible.block_lists.empty()) add_block_lists(visible.block_lists, v, batch);
  if (!visible.positions.empty()) add_positions(visible.positions, v, batch);
  batch.spans.back().visibility = static_cast<int32_t>(batch.visibility.size());
  batch.visibility.push_back(v);
}

void reserve_visibility(int64_t spans, int64_t tokens, Batch& batch) {
  batch.visibility.reserve(static_cast<size_t>(spans));
  batch.ancestors.reserve(static_cast<size_t>(tokens));
}

Result<void> check_visible(const ArchSpec& spec, std::string_view what) {
  if (keeps(spec, StateKind::recurrent))
    return Error::unsupported(
        fmt::format("{}: the model has recurrent layers, whose state is of every token before it", what));
  return {};
}

Result<void> check_movable(const ArchSpec& spec, std::string_view what) {
  MILLRACE_TRY_VOID(check_visible(spec, what));
  if (spec.learned_positions)
    return Error::unsupported(
        fmt::format("{}: the model adds learned positions to its tokens, so that their keys cannot be moved", what));
  return {};
}

}  // namespace millrace
