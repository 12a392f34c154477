#include "sampling/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace millrace {
namespace {

StopMatcher matcher(std::vector<std::string> stop) { return std::move(*StopMatcher::create(std::move(stop))); }

TEST(StopStrings, HoldsBackPartialMatches) {
  auto m = matcher({"END"});
  EXPECT_EQ(m.push("the E"), "the ");
  EXPECT_EQ(m.push("N"), "");
  EXPECT_EQ(m.push("gine E"), "ENgine ");
  EXPECT_EQ(m.push("NDing"), "");
  EXPECT_TRUE(m.stopped());
  EXPECT_EQ(m.matched(), "END");
  EXPECT_EQ(m.push("more"), "");
  EXPECT_EQ(m.flush(), "");
}

TEST(StopStrings, FlushReleasesAPartialMatch) {
  auto m = matcher({"END"});
  EXPECT_EQ(m.push("EN"), "");
  EXPECT_EQ(m.held_bytes(), 2u);
  EXPECT_EQ(m.flush(), "EN");
  EXPECT_FALSE(m.stopped());
}

TEST(StopStrings, SelfOverlap) {
  auto m = matcher({"aab"});
  EXPECT_EQ(m.push("aaa"), "a");
  EXPECT_EQ(m.push("b"), "");
  EXPECT_TRUE(m.stopped());
}

TEST(StopStrings, TheEarliestEndWinsThenTheEarliestBegin) {
  auto m = matcher({"bc", "abc"});
  EXPECT_EQ(m.push("xabc"), "x");
  EXPECT_EQ(m.matched(), "abc");
  auto shorter = matcher({"abcd", "b"});
  EXPECT_EQ(shorter.push("xabcd"), "xa");
  EXPECT_EQ(shorter.matched(), "b");
}

TEST(StopStrings, WithoutStopStringsEverythingPasses) {
  StopMatcher none;
  EXPECT_EQ(none.push("anything"), "anything");
  EXPECT_FALSE(none.stopped());
}

TEST(StopStrings, RejectsInvalidLists) {
  EXPECT_EQ(StopMatcher::create({""}).error().kind, ErrorKind::user);
  EXPECT_FALSE(StopMatcher::create({std::string(5000, 'x')}).ok());
  EXPECT_FALSE(StopMatcher::create(std::vector<std::string>(300, "x")).ok());
}

TEST(StopStrings, AcceptsTheDocumentedNumberAndLength) {
  EXPECT_TRUE(StopMatcher::create(std::vector<std::string>(256, std::string(4096, 'x'))).ok());
  const auto many = StopMatcher::create(std::vector<std::string>(257, "x"));
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().message, "stop: at most 256 strings, got 257");
  const auto large = StopMatcher::create({"x", std::string(4097, 'x')});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message, "stop: each string must have 1 to 4096 bytes, got 4097");
}

TEST(StopStrings, FlushedTextStartsNoMatch) {
  auto m = matcher({"END"});
  EXPECT_EQ(m.push("EN"), "");
  EXPECT_EQ(m.flush(), "EN");
  EXPECT_EQ(m.push("D"), "D");
  EXPECT_EQ(m.flush(), "");
  EXPECT_EQ(m.push("NDs"), "NDs");
  EXPECT_FALSE(m.stopped());
  EXPECT_EQ(m.push("END"), "");
  EXPECT_TRUE(m.stopped());
}

// Against a plain search, for random texts over two letters cut at random places.
TEST(StopStrings, EqualsAPlainSearch) {
  std::mt19937 engine(11);
  auto word = [&](size_t longest) {
    std::string out(1 + engine() % longest, 'a');
    for (auto& c : out) c = static_cast<char>('a' + engine() % 2);
    return out;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 1 + engine() % 3; i > 0; --i) stops.push_back(word(6));
    std::string text = word(40);
    size_t best_end = std::string::npos, best_begin = 0;
    for (const auto& stop : stops) {
      size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      size_t end = begin + stop.size();
      if (end < best_end || (end == best_end && begin < best_begin)) best_end = end, best_begin = begin;
    }
    auto m = matcher(stops);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      size_t n = 1 + engine() % 5;
      shown += m.push(std::string_view(text).substr(at, n));
      at += n;
      // Exactly the longest suffix of the text so far that is a prefix of some stop string is held back.
      if (m.stopped()) break;
      std::string so_far = text.substr(0, at);
      size_t open = 0;
      for (const auto& stop : stops) {
        for (size_t length = 1; length < stop.size(); ++length) {
          if (so_far.ends_with(stop.substr(0, length))) open = std::max(open, length);
        }
      }
      ASSERT_EQ(m.held_bytes(), open);
    }
    ASSERT_EQ(m.stopped(), best_end != std::string::npos);
    if (!m.stopped()) shown += m.flush();
    ASSERT_EQ(shown, m.stopped() ? text.substr(0, best_begin) : text);
  }
}

TEST(StopStrings, IsIncludedIfRequested) {
  auto stop = StopMatcher::create({"END", "x"}, true);
  ASSERT_TRUE(stop.ok());
  EXPECT_EQ(stop->push("the E"), "the ");
  EXPECT_EQ(stop->push("NDing"), "END");
  EXPECT_TRUE(stop->stopped());
  EXPECT_EQ(stop->push("more"), "");
  EXPECT_EQ(stop->flush(), "");
}

}  // namespace
}  // namespace millrace
