#include "cluster/route.h"

#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

std::vector<NodeView> nodes_with(const std::vector<int64_t>& open) {
  std::vector<NodeView> out(open.size());
  for (size_t i = 0; i < open.size(); ++i) out[i].index = i, out[i].open = open[i], out[i].state = NodeState::ready;
  return out;
}

size_t chosen(const char* route, const std::vector<NodeView>& nodes, RouteInput input = {}) {
  const PrefixMemory none;
  input.nodes = nodes;
  if (!input.memory) input.memory = &none;
  return find_route(route)->choose(input);
}

TEST(Routes, AreNamed) {
  EXPECT_EQ(find_route("nonesuch"), nullptr);
  for (const Route& route : routes()) EXPECT_EQ(find_route(route.name), &route);
}

TEST(Routes, EachChoosesOneOfTheNodes) {
  for (const Route& route : routes())
    for (size_t n = 1; n < 6; ++n)
      for (uint64_t number = 0; number < 20; ++number)
        EXPECT_LT(chosen(route.name.data(), nodes_with(std::vector<int64_t>(n, 3)), {.number = number}), n);
}

TEST(Routes, InTurn) {
  const auto nodes = nodes_with({9, 0, 0});
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(chosen("in_turn", nodes, {.number = i}), i % 3);
}

TEST(Routes, LeastLoadedSpreadsEqualLoads) {
  EXPECT_EQ(chosen("least_loaded", nodes_with({2, 1, 3}), {.number = 5}), 1u);
  std::map<size_t, int> count;
  for (uint64_t i = 0; i < 30; ++i) ++count[chosen("least_loaded", nodes_with({0, 0, 0}), {.number = i})];
  EXPECT_EQ(count.size(), 3u);
}

TEST(Routes, PowerOfTwoNeverTakesTheBusiestOfTwo) {
  const auto nodes = nodes_with({5, 1});
  int busy = 0;
  for (uint64_t i = 0; i < 100; ++i) busy += chosen("power_of_two", nodes, {.number = i}) == 0;
  EXPECT_LT(busy, 50);  // only where both draws are the first node
  EXPECT_GT(busy, 0);
}

TEST(Routes, ANodeThatLeavesMovesItsOwnSessionsAlone) {
  const auto all = nodes_with({0, 0, 0, 0});
  auto rest = all;
  rest.erase(rest.begin() + 2);
  int moved = 0;
  for (uint64_t session = 1; session <= 200; ++session) {
    const size_t before = all[chosen("session", all, {.session = session})].index;
    const size_t after = rest[chosen("session", rest, {.session = session})].index;
    if (before == 2)
      ++moved;
    else
      EXPECT_EQ(before, after) << session;
  }
  EXPECT_GT(moved, 20);
  EXPECT_LT(moved, 90);
}

TEST(Routes, PrefixGoesWhereItIsKnownUnlessThatNodeIsBusy) {
  PrefixMemory memory;
  const std::string text(10 * kPrefixBytes, 'a');
  const auto digests = prefix_digests(text);
  ASSERT_EQ(digests.size(), 10u);
  memory.add(digests, 1);
  const auto other = prefix_digests(text.substr(0, 3 * kPrefixBytes) + std::string(7 * kPrefixBytes, 'b'));
  EXPECT_EQ(memory.known(digests, 1), 10u);
  EXPECT_EQ(memory.known(other, 1), 3u);
  EXPECT_EQ(memory.known(digests, 0), 0u);
  EXPECT_EQ(chosen("prefix", nodes_with({0, 3, 0}), {.prefix = digests, .memory = &memory}), 1u);
  EXPECT_EQ(chosen("prefix", nodes_with({0, 3, 0}), {.prefix = other, .memory = &memory}), 1u);
  EXPECT_NE(chosen("prefix", nodes_with({0, 50, 0}), {.prefix = digests, .memory = &memory}), 1u);
}

TEST(Routes, PrefixMemoryIsBounded) {
  PrefixMemory memory(4);
  const auto first = prefix_digests(std::string(4 * kPrefixBytes, 'a'));
  const auto second = prefix_digests(std::string(4 * kPrefixBytes, 'b'));
  memory.add(first, 0);
  memory.add(second, 0);
  EXPECT_EQ(memory.known(first, 0), 0u);
  EXPECT_EQ(memory.known(second, 0), 4u);
}

TEST(NodeAddress, Parses) {
  const auto plain = NodeAddress::parse("10.0.0.1:8080");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->url(), "http://10.0.0.1:8080");
  const auto six = NodeAddress::parse("http://[::1]:9000/");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->url(), "http://[::1]:9000");
  for (const char* bad :
       {"", "host", "host:", ":80", "host:0", "host:65536", "host:8a", "ho st:80", "a@b:80", "h/p:80"})
    EXPECT_FALSE(NodeAddress::parse(bad).ok()) << bad;
  EXPECT_EQ(NodeAddress::parse("https://host:443").error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
