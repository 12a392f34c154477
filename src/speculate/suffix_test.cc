// The suffix automaton and its drafter against a plain search of all texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/philox.h"
#include "speculate/drafter.h"
#include "speculate/suffix_automaton.h"

namespace millrace {
namespace {

using Text = std::vector<TokenId>;

Text random_text(uint64_t seed, int64_t size, int kinds) {
  Text text;
  for (int64_t i = 0; i < size; ++i)
    text.push_back(static_cast<TokenId>(philox_uniform(seed, 1, static_cast<uint64_t>(i)) * kinds));
  return text;
}

// The longest suffix of `text` that some token followed in one of `texts`.
int64_t longest_match(const std::vector<Text>& texts, const Text& text) {
  for (size_t length = text.size(); length > 0; --length)
    for (const Text& one : texts)
      for (size_t at = 0; at + length < one.size(); ++at)
        if (std::equal(text.end() - static_cast<ptrdiff_t>(length), text.end(),
                       one.begin() + static_cast<ptrdiff_t>(at)))
          return static_cast<int64_t>(length);
  return 0;
}

// Of texts that grow in turns, in two scopes.
TEST(SuffixAutomaton, FindsTheLongestSuffixThatWasFollowedInItsScope) {
  for (const int kinds : {2, 3, 8}) {
    SuffixAutomaton automaton(1 << 10);
    std::map<uint64_t, std::vector<Text>> texts;
    std::vector<int32_t> last;
    std::vector<Text> all;
    for (uint64_t i = 0; i < 6; ++i) {
      all.push_back(random_text(i + 7, 60, kinds));
      texts[i % 2].emplace_back();
      last.push_back(automaton.root(i % 2));
    }
    for (size_t at = 0; at < 60; ++at) {
      for (size_t i = 0; i < all.size(); ++i) {
        Text& text = texts[i % 2][i / 2];
        text.push_back(all[i][at]);
        last[i] = automaton.extend(last[i], all[i][at]);
        ASSERT_NE(last[i], SuffixAutomaton::kNone);
        EXPECT_EQ(automaton.length(last[i]), static_cast<int64_t>(at) + 1);
        const auto match = automaton.continued({last[i], automaton.length(last[i])});
        ASSERT_EQ(match.length, longest_match(texts[i % 2], text)) << kinds << " " << i << " " << at;
      }
    }
    // A text that is not added.
    SuffixAutomaton::Match match{automaton.find_root(0), 0};
    Text text;
    for (const TokenId token : random_text(99, 80, kinds)) {
      text.push_back(token);
      match = automaton.advance(match, token);
      ASSERT_EQ(automaton.continued(match).length, longest_match(texts[0], text));
    }
  }
}

TEST(SuffixAutomaton, TheLikeliestIsWhatFollowedMostOftenAndTheLatestOfEquals) {
  SuffixAutomaton automaton(100);
  int32_t last = automaton.root(5);
  for (const TokenId token : {1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2}) last = automaton.extend(last, token);
  const auto match = automaton.continued({last, automaton.length(last)});
  EXPECT_EQ(match.length, 5);  // 2 3 1 2 before 4 is shorter than 1 2 3 1 2
  const auto next = automaton.likeliest(match.state);
  EXPECT_EQ(next.token, 4);
  EXPECT_EQ(next.share, 1.0);
  const auto pair = automaton.advance(automaton.advance({automaton.find_root(5), 0}, 1), 2);
  EXPECT_EQ(automaton.likeliest(pair.state).token, 3);
  EXPECT_NEAR(automaton.likeliest(pair.state).share, 2.0 / 3, 1e-9);
  last = automaton.extend(last, 4);
  EXPECT_EQ(automaton.likeliest(automaton.continued(pair).state).token, 4);
}

TEST(SuffixAutomaton, TakesNoMoreThanItWasMadeFor) {
  for (const int kinds : {1, 2, 5, 1000}) {
    SuffixAutomaton automaton(300);
    int32_t last = automaton.root(1);
    for (const TokenId token : random_text(3, 299, kinds)) ASSERT_NE(last = automaton.extend(last, token), -1);
    EXPECT_EQ(automaton.room(), 0);
    EXPECT_EQ(automaton.extend(last, 1), SuffixAutomaton::kNone);
    EXPECT_EQ(automaton.root(2), SuffixAutomaton::kNone);
    automaton.clear();
    EXPECT_EQ(automaton.find_root(1), SuffixAutomaton::kNone);
    EXPECT_EQ(automaton.room(), 300);
  }
}

class Drafting {
 public:
  explicit Drafting(const std::string& text) : drafter_(make_drafter(text).value()) {}

  Sequence stream(Text tokens, uint64_t scope) const {
    Sequence out;
    out.tokens = std::move(tokens);
    out.prefix = {.caches = scope != kPrivate, .scope = scope};
    out.draft.memory = drafter_->texts.front().drafter->remember();
    return out;
  }
  Text propose(const Sequence& of) const {
    Draft out;
    drafter_->texts.front().drafter->propose(of, 64, out);
    return out.tokens;
  }

  static constexpr uint64_t kPrivate = 77;

 private:
  std::unique_ptr<Drafter> drafter_;
};

TEST(SuffixDrafter, DraftsFromItsOwnTextAndFromThoseOfItsScope) {
  const Drafting drafting("suffix:k=4");
  EXPECT_EQ(drafting.propose(drafting.stream({9, 1, 2, 3, 4, 5, 6, 1, 2}, 1)), (Text{3, 4, 5, 6}));
  const Text begun = {8, 5, 6};
  EXPECT_EQ(drafting.propose(drafting.stream(begun, 2)), Text()) << "another scope";
  EXPECT_EQ(drafting.propose(drafting.stream(begun, Drafting::kPrivate)), Text()) << "no scope at all";
  EXPECT_EQ(drafting.propose(drafting.stream(begun, 1)), (Text{1, 2, 3, 4}));
}

TEST(SuffixDrafter, DraftsAreAsLongAsMatchesAndSharesAllow) {
  const Text text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3};
  const auto drafted = [&](const std::string& options) {
    const Drafting drafting("suffix:" + options);
    return drafting.propose(drafting.stream(text, 0)).size();
  };
  EXPECT_EQ(drafted("factor=1"), 3u);
  EXPECT_EQ(drafted("factor=2"), 6u);
  EXPECT_EQ(drafted("k=5"), 5u);
  EXPECT_EQ(drafted("min=4"), 0u);
  // After 1 2 came 3, and twice each 4 and 5 after that; half of it is below 0.6.
  const Drafting drafting("suffix:p=0.6");
  EXPECT_EQ(drafting.propose(drafting.stream({1, 2, 3, 4, 1, 2, 3, 5, 7, 1, 2}, 0)), (Text{3}));
}

TEST(SuffixDrafter, AStreamThatGrowsHasTheDraftsOfOneThatBegins) {
  const Drafting grows("suffix:history=16384,factor=4"), begins("suffix:history=16384,factor=4");
  const Text text = random_text(4, 500, 3);
  Sequence stream = grows.stream({text.begin(), text.begin() + 10}, 0);
  for (size_t size = 10; size < text.size(); size += 1 + size % 4) {
    stream.tokens.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_EQ(grows.propose(stream), begins.propose(begins.stream(stream.tokens, Drafting::kPrivate))) << size;
  }
}

// Texts of streams that have ended are forgotten at last; a running stream goes on finding its own.
TEST(SuffixDrafter, OldTextsGiveWayAndStreamsGoOn) {
  const Drafting drafting("suffix:history=256,k=3,p=0");
  Sequence lasting = drafting.stream({901, 902, 903, 904, 905}, 1);
  EXPECT_EQ(drafting.propose(lasting), Text());
  EXPECT_EQ(drafting.propose(drafting.stream({1, 901, 902}, 1)), (Text{903, 904, 905}));
  int64_t found = 0;
  for (TokenId i = 0; i < 100; ++i) {
    drafting.propose(drafting.stream(random_text(static_cast<uint64_t>(i) + 50, 40, 400), 1));
    for (const TokenId token : {901, 902}) lasting.tokens.push_back(token);
    found += drafting.propose(lasting).empty() ? 0 : 1;
    lasting.tokens.push_back(500 + i);
  }
  EXPECT_GT(found, 95);
  EXPECT_EQ(drafting.propose(drafting.stream({7, 903, 904}, 1)), Text()) << "forgotten";
}

}  // namespace
}  // namespace millrace
