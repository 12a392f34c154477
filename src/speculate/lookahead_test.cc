// Lookahead decoding: the shape of its window, its levels and its n-grams, with a small model.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {
namespace {

using Words = std::vector<TokenId>;

// A model: the likeliest token depends on the last two.
TokenId likeliest(const Words& text) {
  const auto last = static_cast<uint64_t>(text.back());
  const auto before = static_cast<uint64_t>(text.size() > 1 ? text[text.size() - 2] : 0);
  return static_cast<TokenId>(philox_uniform(7, last, before % 3) * 40);
}

// Decodes greedily with a drafter, as an engine does.
class Decoding {
 public:
  explicit Decoding(const std::string& drafter) : drafter_(make_drafter(drafter).value()) {
    stream.tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    stream.prompt_tokens = 8;
    stream.draft.memory = drafter_->texts.front().drafter->remember();
  }

  Words path(int64_t at) const {
    Words text;
    for (; at >= 0; at = stream.draft.parent(at)) text.push_back(stream.draft.tokens[static_cast<size_t>(at)]);
    text.insert(text.end(), stream.tokens.rbegin(), stream.tokens.rend());
    std::ranges::reverse(text);
    return text;
  }

  // The probes that the next step will run.
  Words window() {
    propose();
    return {stream.draft.tokens.end() - static_cast<ptrdiff_t>(stream.draft.probes), stream.draft.tokens.end()};
  }
  // The model's tokens behind the last `count` of them.
  Words behind_last(int64_t count) const {
    Words out;
    for (int64_t i = stream.draft.size() - count; i < stream.draft.size(); ++i) out.push_back(likeliest(path(i)));
    return out;
  }

  // Returns the committed tokens. `ran`: drafted tokens that the step has room for.
  int64_t step(int64_t ran = 64) {
    propose();
    const Draft& draft = stream.draft;
    ran = std::min(ran, draft.size());
    Words probed;
    for (int64_t i = draft.candidates(ran); i < ran; ++i) probed.push_back(likeliest(path(i)));
    int64_t committed = 0, at = -1;
    do {
      stream.tokens.push_back(likeliest(stream.tokens));
      ++committed;
      at = kept_child(draft, at, ran, stream.tokens.back());
    } while (at >= 0);
    drafter_->texts.front().drafter->observe(stream, committed, probed);
    return committed;
  }

  Sequence stream;

 private:
  void propose() {
    stream.draft.clear();
    drafter_->texts.front().drafter->propose(stream, drafter_->longest(), stream.draft);
  }

  std::unique_ptr<Drafter> drafter_;
};

TEST(LookaheadDrafter, TheWindowHasNMinus1LevelsOfColumns) {
  Decoding decoding("lookahead:w=4,n=4,g=2");
  const auto probe_parents = [&] {
    const Draft& draft = decoding.stream.draft;
    std::vector<int32_t> parents(draft.parents.end() - static_cast<ptrdiff_t>(draft.probes), draft.parents.end());
    const auto first = static_cast<int32_t>(draft.size() - draft.probes);
    for (int32_t& parent : parents)
      if (parent >= 0) parent -= first;
    return parents;
  };
  decoding.step();
  EXPECT_EQ(probe_parents(), (std::vector<int32_t>{-1, 0, 1, 2}));
  decoding.step();
  EXPECT_EQ(probe_parents(), (std::vector<int32_t>{-1, 0, 1, 2, 0, 1, 2, 3}));
  for (int i = 0; i < 3; ++i) {
    decoding.step();
    EXPECT_EQ(probe_parents(), (std::vector<int32_t>{-1, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

// The levels are a plain Jacobi iteration that keeps its last states: each is the model's answer to the one before it.
TEST(LookaheadDrafter, ALevelIsTheNextIterationOfTheOneBeforeIt) {
  constexpr int64_t kColumns = 6, kLevels = 3;
  Decoding decoding("lookahead:w=6,n=4,g=1");
  for (int step = 0; step < 40; ++step) {
    const Words window = decoding.window();
    const int64_t levels = std::ssize(window) / kColumns;
    ASSERT_EQ(levels, std::min<int64_t>(step + 1, kLevels));
    const Words next = decoding.behind_last(kColumns);
    const int64_t committed = decoding.step(), drops = levels == kLevels;
    const int64_t passed = std::min(committed - drops, kColumns);
    const Words after = decoding.window();
    const int64_t levels_after = std::min(levels + 1, kLevels);
    ASSERT_EQ(std::ssize(after), levels_after * kColumns);
    for (int64_t column = 0; column + passed < kColumns; ++column) {
      EXPECT_EQ(after[static_cast<size_t>((levels_after - 1) * kColumns + column)],
                next[static_cast<size_t>(column + passed)])
          << step;
      for (int64_t level = 0; level + 1 < levels_after; ++level)
        EXPECT_EQ(after[static_cast<size_t>(level * kColumns + column)],
                  window[static_cast<size_t>((level + drops) * kColumns + column + passed)])
            << step;
    }
  }
}

// Branches are n-grams of the model that begin with the stream's last token.
TEST(LookaheadDrafter, BranchesAreVerifiedNgrams) {
  Decoding decoding("lookahead:w=8,n=3,g=4");
  int64_t committed = 0, steps = 0, drafted = 0, chosen = 0;
  for (; committed < 400; ++steps) {
    decoding.window();
    const Draft draft = decoding.stream.draft;
    EXPECT_LE(draft.size() - draft.probes, 2 * 4);
    for (int64_t i = 0; i < draft.size() - draft.probes; ++i) {
      const int64_t parent = draft.parent(i);
      if (parent < 0) continue;
      ++drafted;  // the second token of an n-gram, which depends on the two before it alone
      chosen += draft.tokens[static_cast<size_t>(i)] == likeliest(decoding.path(parent));
    }
    committed += decoding.step();
  }
  EXPECT_GT(drafted, 50);
  EXPECT_EQ(chosen, drafted);
  EXPECT_LT(steps, 250) << "several tokens a step";
}

// Where a step has no room for the window, the iteration waits, and its columns are passed one by one.
TEST(LookaheadDrafter, AWindowThatDidNotRunIsKept) {
  Decoding decoding("lookahead:w=5,n=3,g=2");
  for (int i = 0; i < 4; ++i) decoding.step();
  const Words window = decoding.window();
  EXPECT_EQ(decoding.step(0), 1);
  const Words after = decoding.window();
  ASSERT_EQ(after.size(), window.size());
  for (size_t level = 0; level < 2; ++level)
    for (size_t column = 0; column < 4; ++column)
      EXPECT_EQ(after[level * 5 + column], window[level * 5 + column + 1]) << level << column;
}

TEST(LookaheadDrafter, TokensOfAStepAreLimited) {
  EXPECT_EQ(make_drafter("lookahead").value()->longest(), 30);
  EXPECT_EQ(make_drafter("lookahead:w=8,n=5,g=8").value()->longest(), 64);
  EXPECT_EQ(make_drafter("lookahead:w=9,n=5,g=8").error().message,
            "drafter lookahead: (n - 1) * (w + g) is 68 tokens; a step runs at most 64 of a stream");
}

}  // namespace
}  // namespace millrace
