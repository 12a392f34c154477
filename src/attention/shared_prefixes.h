// Spans of one token whose keys begin with the same blocks, such as streams that decode behind a common system prompt.
// attend() reads shared keys once for the queries of all spans that share them, on every level of prefixes within
// prefixes (Ye et al., 2025, "FlashInfer", cascade; Juravsky et al., 2024, "Hydragen"). It shares whole partitions
// only, so partials and their order, and thus bits, are those of a span alone.
//
// members   A   B   C   D   E      ordered by their block tables, so that streams with longer shared prefixes are
// neighbours
//   shared      5   8   5   2        partitions that neighbours have in common
//
// All five read two partitions together, A to D three more, and B and C another three.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/batch.h"

namespace millrace {

class SharedPrefixes {
 public:
  // Neighbours share at least a partition.
  struct Group {
    int64_t first = 0;  // in members()
    int64_t members = 0;
  };

  void reserve(int64_t spans);
  // Forms groups: two or more spans of one token, without a Visibility, that share the same blocks for at least a
  // partition.
  void find(std::span<const BatchSpan> spans, std::span<const int32_t> tables, int64_t block_tokens);

  std::span<const Group> groups() const { return groups_; }
  // Indices of spans.
  std::span<const int32_t> members(const Group& group) const {
    return std::span(members_).subspan(static_cast<size_t>(group.first), static_cast<size_t>(group.members));
  }
  // Partitions, from slot 0, that each member shares with the next one; 0 for the last.
  std::span<const int32_t> shared(const Group& group) const {
    return std::span(shared_).subspan(static_cast<size_t>(group.first), static_cast<size_t>(group.members));
  }
  bool grouped(size_t span) const { return grouped_[span] != 0; }

 private:
  std::vector<Group> groups_;
  std::vector<int32_t> members_;
  std::vector<int32_t> shared_;
  std::vector<uint8_t> grouped_;  // by span
};

}  // namespace millrace
