// The tree of keys against its definition: which member a key leads to from each place of the list.
#include "text/grammar/key_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace millrace {
namespace {

// The member whose key the text is, starting where member `place` is the first allowed; -1: none.
int member_after(const KeyTree& tree, size_t place, std::string_view text) {
  auto state = static_cast<int32_t>(place);
  for (const char c : text) {
    int32_t to = -1;
    for (const KeyTree::Edge& edge : tree.edges) {
      if (edge.from != state || edge.byte != static_cast<uint8_t>(c)) continue;
      EXPECT_EQ(to, -1) << "two edges with one byte";
      to = edge.to;
    }
    if ((state = to) < 0) return -1;
  }
  for (size_t member = 0; member < tree.ends.size(); ++member)
    if (tree.ends[member] == state) return static_cast<int>(member);
  return -1;
}

TEST(KeyTrees, LeadToTheMembersThatMayFollow) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> keys;
    std::string counts;
    for (size_t n = 1 + random() % 6; keys.size() < n;) {
      std::string key;
      for (size_t length = random() % 4; length > 0; --length) key += "ab\xFF"[random() % 3];
      key += '"';  // so that none is a prefix of another
      if (std::ranges::find(keys, key) != keys.end()) continue;
      keys.push_back(key);
      counts += random() % 3 == 0 ? '1' : '?';
    }
    const auto tree = make_key_tree(keys, counts, nullptr);
    ASSERT_TRUE(tree.ok());
    for (const KeyTree::Edge& edge : tree->edges) {
      ASSERT_LT(edge.to, tree->states);
      ASSERT_GE(edge.to, static_cast<int32_t>(keys.size())) << "no edge leads before a key";
    }
    for (size_t place = 0; place < keys.size(); ++place) {
      bool allowed = true;  // up to the next required member
      for (size_t member = 0; member < keys.size(); ++member) {
        const bool follows = member >= place && allowed;
        EXPECT_EQ(member_after(*tree, place, keys[member]), follows ? static_cast<int>(member) : -1)
            << "seed " << seed << " place " << place << " key " << member;
        if (member >= place && counts[member] == '1') allowed = false;
      }
    }
  }
}

TEST(KeyTrees, AreRefusedWhereAKeyIsAPrefix) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"a", "ab"}, {"ab", "b", "a"}, {"a", "a"}, {"", "a"}}) {
    const auto tree = make_key_tree(keys, std::string(keys.size(), '?'), nullptr);
    ASSERT_FALSE(tree.ok()) << keys[0] << " " << keys[1];
    EXPECT_EQ(tree.error().kind, ErrorKind::internal);
    EXPECT_EQ(tree.error().message, "key tree: a key is a prefix of another");
  }
  EXPECT_TRUE(make_key_tree(std::vector<std::string>{"a"}, "?", nullptr).ok());
  EXPECT_TRUE(make_key_tree({}, "", nullptr).ok());
}

TEST(KeyTrees, HaveAStateForEachPrefixAndPlace) {
  const auto states = [](const std::vector<std::string>& keys) {
    return make_key_tree(keys, std::string(keys.size(), '?'), nullptr)->states;
  };
  EXPECT_EQ(states({"a"}), 1 + 1);
  EXPECT_EQ(states({"abc"}), 1 + 3);
  EXPECT_EQ(states({"ab", "ac"}), 2 + 2 + 1 + 1);
  EXPECT_EQ(states({"ab", "cd"}), 2 + 2 + 2);
  EXPECT_EQ(states({"xa", "xb", "xc"}), 3 + 3 + 3);
}

}  // namespace
}  // namespace millrace
