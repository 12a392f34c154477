// The n-gram drafter against a plain search, and its options.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

Ids draft(const std::string& text, const Ids& tokens, int64_t most = 64) {
  auto drafter = make_drafter(text);
  EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
  Sequence stream;
  stream.tokens = tokens;
  Draft out;
  (*drafter)->texts.front().drafter->propose(stream, most, out);
  EXPECT_TRUE(out.parents.empty());
  return out.tokens;
}

TEST(NgramDrafter, DraftsWhatFollowedTheLatestOfTheLongestMatches) {
  EXPECT_EQ(draft("ngram:n=2,k=3", {1, 2, 3, 4, 5, 1, 2}), (Ids{3, 4, 5}));
  EXPECT_EQ(draft("ngram:n=2,k=2", {1, 2, 3, 1, 2, 4, 7, 1, 2}), (Ids{4, 7})) << "the latest";
  EXPECT_EQ(draft("ngram:n=3,k=2", {9, 1, 2, 3, 3, 1, 2, 4, 9, 1, 2}), (Ids{3, 3})) << "the longest";
  EXPECT_EQ(draft("ngram:n=2,k=2", {9, 1, 2, 3, 3, 1, 2, 4, 9, 1, 2}), (Ids{4, 9}));
}

TEST(NgramDrafter, ContinuesAPeriodBeyondTheEnd) {
  EXPECT_EQ(draft("ngram:min=1,k=4", {5, 5}), (Ids{5, 5, 5, 5}));
  EXPECT_EQ(draft("ngram:k=7", {8, 1, 2, 3, 1, 2, 3}), (Ids{1, 2, 3, 1, 2, 3, 1}));
}

TEST(NgramDrafter, DraftsNothingWithoutAMatchOfTheLeastLength) {
  EXPECT_EQ(draft("ngram", {1, 2, 3, 2}), Ids());
  EXPECT_EQ(draft("ngram:min=1", {1, 2, 3, 2}), (Ids{3, 2, 3, 2}));
  for (const Ids& none : {Ids{}, Ids{1}, Ids{1, 2}, Ids{1, 2, 3, 4}}) EXPECT_EQ(draft("ngram:min=1", none), Ids());
}

TEST(NgramDrafter, DraftsNoMoreThanItMay) {
  const Ids tokens = {1, 2, 3, 4, 5, 6, 7, 1, 2};
  EXPECT_EQ(draft("ngram", tokens).size(), 4u);
  EXPECT_EQ(draft("ngram", tokens, 2), (Ids{3, 4}));
}

// The definition, tried for every length and place.
Ids plain(const Ids& tokens, size_t n, size_t least, size_t k) {
  for (size_t length = std::min(n, tokens.size()); length >= least; --length) {
    for (size_t end = tokens.size() - 1; end >= length; --end) {
      const auto at = static_cast<ptrdiff_t>(end - length);
      if (!std::equal(tokens.end() - static_cast<ptrdiff_t>(length), tokens.end(), tokens.begin() + at)) continue;
      Ids all = tokens;
      for (size_t i = 0; i < k; ++i) all.push_back(all[end + i]);
      return Ids(all.end() - static_cast<ptrdiff_t>(k), all.end());
    }
  }
  return {};
}

TEST(NgramDrafter, IsThePlainSearch) {
  int drafts = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    const auto draw = [&](uint64_t what, uint64_t i, double most) {
      return static_cast<size_t>(philox_uniform(round, what, i) * most);
    };
    const size_t size = 1 + draw(1, 0, 40), kinds = 2 + draw(1, 1, 5), n = 1 + draw(1, 2, 6),
                 least = 1 + draw(1, 3, static_cast<double>(n)), k = 1 + draw(1, 4, 9);
    Ids tokens(size);
    for (size_t i = 0; i < size; ++i) tokens[i] = static_cast<TokenId>(draw(2, i, static_cast<double>(kinds)));
    const Ids expected = plain(tokens, n, least, k);
    ASSERT_EQ(draft(fmt::format("ngram:n={},min={},k={}", n, least, k), tokens), expected) << round;
    drafts += !expected.empty();
  }
  EXPECT_GT(drafts, 1000);
}

TEST(Drafters, ErrorsNameWhatThereIs) {
  const auto message = [](const char* text) {
    const auto made = make_drafter(text);
    return made.ok() ? std::string() : made.error().message;
  };
  EXPECT_EQ(message("grams"), "drafter: unknown 'grams'; available: " + drafters().names());
  EXPECT_EQ(message("ngram:n=0"), "drafter ngram: n: must be between 1 and 64, got 0");
  EXPECT_EQ(message("ngram:n=2,min=3"), "drafter ngram: min: must be at most n, which is 2, got 3");
  EXPECT_EQ(make_acceptance("most").error().message, "acceptance: unknown 'most'; available: " + acceptances().names());
  EXPECT_EQ(make_drafter("ngram:k=7").value()->longest(), 7);
  EXPECT_FALSE(make_drafter("ngram:k=x").ok());
}

TEST(Acceptances, OnlyExactNeedsNoChoice) {
  for (const auto& info : acceptances().infos()) {
    const auto rule = make_acceptance(info.name);
    ASSERT_TRUE(rule.ok());
    EXPECT_EQ((*rule)->exact(), info.name == "exact") << info.name;
  }
  EXPECT_FALSE(make_acceptance("typical").value()->needs_odds());
  EXPECT_TRUE(make_acceptance("spectr").value()->needs_odds());
  EXPECT_EQ(make_acceptance("typical:epsilon=2").error().message,
            "acceptance typical: epsilon: must be between 0 and 1, got 2");
}

}  // namespace
}  // namespace millrace
