// Which spans form groups, and how many partitions they share.
#include "attention/shared_prefixes.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int64_t kStreamBlock = 16;

// One token of each stream; a stream is its block table, and the token's slot is in the last block.
struct Streams {
  void add(std::vector<int32_t> blocks, int64_t count = 1, int32_t visibility = -1) {
    const auto size = std::ssize(blocks);
    spans.push_back({.begin = std::ssize(spans),
                     .count = count,
                     .first_slot = size * kStreamBlock - 1,
                     .table = std::ssize(tables),
                     .table_size = size,
                     .visibility = visibility});
    tables.insert(tables.end(), blocks.begin(), blocks.end());
  }
  // Blocks [first, first + common) and then own ones.
  static std::vector<int32_t> blocks(int32_t first, int32_t common, int32_t own_first, int32_t own) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < common; ++i) out.push_back(first + i);
    for (int32_t i = 0; i < own; ++i) out.push_back(own_first + i);
    return out;
  }
  SharedPrefixes find() const {
    SharedPrefixes out;
    out.find(spans, tables, kStreamBlock);
    return out;
  }

  std::vector<BatchSpan> spans;
  std::vector<int32_t> tables;
};

std::vector<int32_t> members_of(const SharedPrefixes& found, size_t group) {
  const auto members = found.members(found.groups()[group]);
  return {members.begin(), members.end()};
}

std::vector<int32_t> shared_of(const SharedPrefixes& found, size_t group) {
  const auto shared = found.shared(found.groups()[group]);
  return {shared.begin(), shared.end()};
}

TEST(SharedPrefixes, GroupsShareWholePartitions) {
  Streams streams;
  streams.add(Streams::blocks(0, 40, 1000, 3));   // 640 slots: two partitions and a half
  streams.add(Streams::blocks(0, 40, 2000, 30));  // its own tail is longer
  streams.add(Streams::blocks(500, 20, 3000, 1));
  streams.add(Streams::blocks(0, 35, 4000, 2));
  streams.add(Streams::blocks(500, 17, 5000, 4));
  streams.add(Streams::blocks(0, 15, 6000, 40));  // less than a partition
  const SharedPrefixes found = streams.find();
  ASSERT_EQ(found.groups().size(), 2u);
  EXPECT_EQ(members_of(found, 0), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(shared_of(found, 0), (std::vector<int32_t>{2, 2, 0}));
  EXPECT_EQ(members_of(found, 1), (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(shared_of(found, 1), (std::vector<int32_t>{1, 0}));
  EXPECT_TRUE(found.grouped(4));
  EXPECT_FALSE(found.grouped(5));
}

TEST(SharedPrefixes, TheTokensOwnBlockIsNeverShared) {
  Streams streams;
  streams.add(Streams::blocks(0, 16, 0, 0));  // its token is the last of the first partition
  streams.add(Streams::blocks(0, 16, 0, 0));
  EXPECT_TRUE(streams.find().groups().empty());
  Streams longer;
  longer.add(Streams::blocks(0, 16, 100, 1));
  longer.add(Streams::blocks(0, 16, 200, 1));
  EXPECT_EQ(longer.find().groups().size(), 1u);
}

TEST(SharedPrefixes, ChunksAndTokensThatSeeLessStayAlone) {
  Streams streams;
  streams.add(Streams::blocks(0, 40, 1000, 3), 2);
  streams.add(Streams::blocks(0, 40, 2000, 3), 1, 0);
  streams.add(Streams::blocks(0, 40, 3000, 3));
  EXPECT_TRUE(streams.find().groups().empty());
  streams.add(Streams::blocks(0, 40, 4000, 3));
  const SharedPrefixes found = streams.find();
  ASSERT_EQ(found.groups().size(), 1u);
  EXPECT_EQ(members_of(found, 0), (std::vector<int32_t>{2, 3}));
}

TEST(SharedPrefixes, FindsPrefixesWithinPrefixes) {
  Streams streams;
  streams.add(Streams::blocks(0, 16 * 2, 9000, 90));
  streams.add(Streams::blocks(0, 16 * 8, 2000, 2));
  streams.add(Streams::blocks(0, 16 * 5, 8000, 7));
  streams.add(Streams::blocks(0, 16 * 8, 1000, 20));
  streams.add(Streams::blocks(0, 16 * 5, 7000, 70));
  streams.add(Streams::blocks(0, 15, 5000, 200));
  const SharedPrefixes found = streams.find();
  ASSERT_EQ(found.groups().size(), 1u);
  EXPECT_EQ(members_of(found, 0), (std::vector<int32_t>{3, 1, 4, 2, 0}));
  EXPECT_EQ(shared_of(found, 0), (std::vector<int32_t>{8, 5, 5, 2, 0}));
  EXPECT_FALSE(found.grouped(5));
}

TEST(SharedPrefixes, FindsAnew) {
  Streams streams;
  streams.add(Streams::blocks(0, 40, 1000, 3));
  streams.add(Streams::blocks(0, 40, 2000, 3));
  SharedPrefixes found = streams.find();
  EXPECT_EQ(found.groups().size(), 1u);
  found.find(std::span(streams.spans).first(1), streams.tables, kStreamBlock);
  EXPECT_TRUE(found.groups().empty());
  EXPECT_FALSE(found.grouped(0));
}

}  // namespace
}  // namespace millrace
