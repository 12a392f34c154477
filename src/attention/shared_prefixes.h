// Spans of one token whose keys begin with the same blocks, such as streams that decode behind a common system prompt.
// attend() reads the shared keys once for all of a group's queries (Ye et al., 2025, "FlashInfer"; Juravsky et al.,
// 2024, "Hydragen"). It shares whole partitions only, so partials and their order, and thus bits, are those of a span
// alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/batch.h"

namespace millrace {

class SharedPrefixes {
 public:
  struct Group {
    int32_t leader = 0;  // its first span
    int64_t members = 0;
    int64_t first = 0;       // in members()
    int64_t partitions = 0;  // that all members share, from slot 0
  };

  void reserve(int64_t spans);
  // Two or more spans of one token, without a Visibility, with the same blocks for at least a partition form a group.
  // A group's members share what its first one has with each; prefixes within prefixes are not looked for.
  void find(std::span<const BatchSpan> spans, std::span<const int32_t> tables, int64_t block_tokens);

  std::span<const Group> groups() const { return groups_; }
  // Indices of spans, ascending.
  std::span<const int32_t> members(const Group& group) const {
    return std::span(members_).subspan(static_cast<size_t>(group.first), static_cast<size_t>(group.members));
  }
  bool grouped(size_t span) const { return group_of_[span] >= 0; }

 private:
  std::vector<Group> groups_;
  std::vector<int32_t> members_;
  std::vector<int32_t> group_of_;  // by span; -1: none
};

}  // namespace millrace
