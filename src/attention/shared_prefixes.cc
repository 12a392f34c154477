#include "attention/shared_prefixes.h"

#include <algorithm>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// The blocks before that of the span's token.
std::span<const int32_t> blocks_of(const BatchSpan& span, std::span<const int32_t> tables, int64_t block_tokens) {
  return tables.subspan(static_cast<size_t>(span.table), static_cast<size_t>(span.first_slot / block_tokens));
}

}  // namespace

void SharedPrefixes::reserve(int64_t spans) {
  const auto count = static_cast<size_t>(spans);
  groups_.reserve(count);
  members_.reserve(count);
  shared_.reserve(count);
  grouped_.reserve(count);
}

void SharedPrefixes::find(std::span<const BatchSpan> spans, std::span<const int32_t> tables, int64_t block_tokens) {
  groups_.clear();
  members_.clear();
  shared_.clear();
  grouped_.assign(spans.size(), 0);
  for (size_t i = 0; i < spans.size(); ++i)
    if (spans[i].count == 1 && spans[i].visibility < 0 && spans[i].first_slot >= kAttentionPartition)
      members_.push_back(static_cast<int32_t>(i));
  const auto blocks = [&](int32_t span) { return blocks_of(spans[static_cast<size_t>(span)], tables, block_tokens); };
  std::ranges::sort(members_, [&](int32_t a, int32_t b) {
    const auto first = blocks(a), second = blocks(b);
    const auto order = std::lexicographical_compare_three_way(first.begin(), first.end(), second.begin(), second.end());
    return order != 0 ? order < 0 : a < b;
  });
  for (size_t i = 0; i < members_.size(); ++i) {
    int64_t same = 0;
    if (i + 1 < members_.size()) {
      const auto own = blocks(members_[i]);
      same = std::ranges::mismatch(own, blocks(members_[i + 1])).in1 - own.begin();
    }
    shared_.push_back(static_cast<int32_t>(same * block_tokens / kAttentionPartition));
  }
  for (int64_t first = 0, at = 0; at < std::ssize(shared_); ++at) {
    if (shared_[static_cast<size_t>(at)] > 0) continue;
    if (at > first) groups_.push_back({first, at - first + 1});
    first = at + 1;
  }
  for (const Group& group : groups_)
    for (const int32_t member : members(group)) grouped_[static_cast<size_t>(member)] = 1;
}

}  // namespace millrace
