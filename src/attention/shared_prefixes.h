// SharedPrefixes: finds spans of one token whose keys begin with the same blocks, for example streams that decode
// behind a common system prompt. attend() reads shared keys once for the queries of all spans that share them, on every
// level of prefixes within prefixes (Ye et al., 2025, "FlashInfer", cascade; Juravsky et al., 2024, "Hydragen"). Only
// whole partitions are shared, so the partials and their order are the same as for a span alone, and so are the bits.
//
//   members   A   B   C   D   E
//   shared      5   8   5   2        partitions that neighbours have in common
//
// Members are sorted by their block tables, so that streams with long shared prefixes are neighbours. Here all five
// read two partitions together, A to D read three more, and B and C read another three.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/batch.h"

namespace millrace {

class SharedPrefixes {
 public:
  // Spans that share blocks: each member shares at least one partition with the next.
  struct Group {
    int64_t first = 0;  // index of the first member
    int64_t members = 0;
  };

  void reserve(int64_t spans);
  // Forms groups: two or more spans of one token, without a Visibility, that share the same blocks for at least a
  // partition.
  void find(std::span<const BatchSpan> spans, std::span<const int32_t> tables, int64_t block_tokens);

  std::span<const Group> groups() const { return groups_; }
  // Returns the spans of a group, as indices into `spans` of find().
  std::span<const int32_t> members(const Group& group) const {
    return std::span(members_).subspan(static_cast<size_t>(group.first), static_cast<size_t>(group.members));
  }
  // Returns for each member the number of partitions, from slot 0, that it shares with the next one; 0 for the last.
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
