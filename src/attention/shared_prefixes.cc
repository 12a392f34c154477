#include "attention/shared_prefixes.h"

#include <algorithm>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// Whole partitions of keys that come before both spans' tokens and are in the same blocks.
int64_t shared_partitions(const BatchSpan& a, const BatchSpan& b, std::span<const int32_t> tables,
                          int64_t block_tokens) {
  const int64_t most = std::min(a.first_slot, b.first_slot) / block_tokens;
  const auto first = tables.begin() + a.table, second = tables.begin() + b.table;
  const int64_t same = std::mismatch(first, first + most, second).first - first;
  return same * block_tokens / kAttentionPartition;
}

}  // namespace

void SharedPrefixes::reserve(int64_t spans) {
  groups_.reserve(static_cast<size_t>(spans));
  members_.reserve(static_cast<size_t>(spans));
  group_of_.reserve(static_cast<size_t>(spans));
}

void SharedPrefixes::find(std::span<const BatchSpan> spans, std::span<const int32_t> tables, int64_t block_tokens) {
  groups_.clear();
  members_.clear();
  group_of_.assign(spans.size(), -1);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].count != 1 || spans[i].visibility >= 0) continue;
    Group* best = nullptr;
    int64_t most = 0;
    for (Group& group : groups_) {
      const int64_t shared =
          shared_partitions(spans[static_cast<size_t>(group.leader)], spans[i], tables, block_tokens);
      if (shared <= most) continue;
      if (group.members > 1 && 2 * shared < group.partitions) continue;  // the others would lose much
      best = &group;
      most = shared;
    }
    if (!best) {
      group_of_[i] = static_cast<int32_t>(groups_.size());
      groups_.push_back(
          {.leader = static_cast<int32_t>(i), .members = 1, .partitions = spans[i].first_slot / kAttentionPartition});
      continue;
    }
    best->partitions = std::min(best->partitions, most);
    ++best->members;
    group_of_[i] = static_cast<int32_t>(best - groups_.data());
  }
  for (int32_t& group : group_of_)
    if (group >= 0 && groups_[static_cast<size_t>(group)].members < 2) group = -1;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].members < 2) continue;
    groups_[g].first = std::ssize(members_);
    for (size_t i = 0; i < spans.size(); ++i)
      if (group_of_[i] == static_cast<int32_t>(g)) members_.push_back(static_cast<int32_t>(i));
  }
  std::erase_if(groups_, [](const Group& group) { return group.members < 2; });
}

}  // namespace millrace
