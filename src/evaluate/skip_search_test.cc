// The search for blocks to skip, and the prediction that it maximises.
#include "evaluate/skip_search.h"

#include <gtest/gtest.h>

#include <set>

#include "evaluate/skip_measure.h"
#include "run/drafting/skip_choice.h"

namespace millrace {
namespace {

// The best vector is `target`; each entry that differs costs more than the one before it.
struct Hidden {
  SkipVector target = {0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0};
  std::set<SkipVector> tried;
  int64_t calls = 0;

  Result<double> operator()(const SkipVector& x) {
    ++calls;
    tried.insert(x);
    double value = 0;
    for (size_t i = 0; i < x.size(); ++i) value -= x[i] != target[i] ? 1 + 0.1 * static_cast<double>(i) : 0;
    return value;
  }
};

TEST(SkipSearch, TheGaussianProcessFindsWhatRandomTrialsDoNot) {
  Hidden bayes, random;
  SkipSearchOptions options{.bayes = true, .trials = 80, .seed = 3};
  const auto found = search_skips(12, options, [&](const SkipVector& x) { return bayes(x); });
  options.bayes = false;
  const auto drawn = search_skips(12, options, [&](const SkipVector& x) { return random(x); });
  ASSERT_TRUE(found.ok() && drawn.ok());
  EXPECT_EQ(found->skipped, bayes.target);
  EXPECT_EQ(found->value, 0);
  EXPECT_LT(drawn->value, 0);
  EXPECT_EQ(bayes.calls, 80);
  EXPECT_EQ(std::ssize(bayes.tried), 80);  // none twice
  EXPECT_EQ(std::ssize(random.tried), 80);
}

TEST(SkipSearch, TheFirstOnesComeFirstAndTheSameSeedGivesTheSameTrials) {
  const SkipSearchOptions options{.bayes = true, .trials = 30, .seed = 5, .first = {{1, 1, 1, 1, 0, 0}}};
  std::vector<std::vector<SkipVector>> runs;
  for (int i = 0; i < 2; ++i) {
    runs.emplace_back();
    ASSERT_TRUE(search_skips(6, options, [&](const SkipVector& x) -> Result<double> {
                  runs.back().push_back(x);
                  return static_cast<double>(x[0] + x[3]);
                }).ok());
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0].front(), options.first.front());
}

TEST(SkipSearch, EndsWhenAllAreTriedAndWithTheObjectivesError) {
  Hidden hidden{{1, 0}, {}, 0};
  const auto all = search_skips(2, {.bayes = true, .trials = 50}, [&](const SkipVector& x) { return hidden(x); });
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->skipped, hidden.target);
  EXPECT_EQ(hidden.calls, 4);
  const auto failed = search_skips(4, {}, [](const SkipVector&) -> Result<double> { return Error::cancelled("no"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no");
}

// The whole model drafts what it says, at its own price: no gain. Without a block it costs less.
TEST(SkipMeasure, TheWholeModelGainsNothing) {
  const auto model = LanguageModel::load("stories-draft", {.threads = 1, .context = 256});
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::string text;
  for (int i = 0; i < 6; ++i)
    text +=
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw "
        "a big red ball. She was very happy and wanted to play with it. ";
  const auto tokens = (*model)->encode(text).value();
  auto measure = SkipMeasure::create(*model, tokens, {.threads = 1, .longest = 4, .window = 64});
  ASSERT_TRUE(measure.ok()) << measure.error().message;
  EXPECT_GT((*measure)->drafts(), 20);
  const auto layers = static_cast<size_t>((*measure)->layers());
  const std::vector<uint8_t> none(layers, 0);
  std::vector<uint8_t> one = none;
  one[1] = 1;
  const SkipGain whole = (*measure)->measure({none, none}).value();
  EXPECT_EQ(whole.gain, 1);
  EXPECT_EQ(whole.kept, static_cast<double>(whole.k));
  EXPECT_EQ(whole.cost, 1);
  const SkipGain less = (*measure)->measure({one, one}).value();
  EXPECT_LT(less.cost, 1);
  EXPECT_GT(less.cost, 0);
  EXPECT_LE(less.kept, static_cast<double>(less.k));
  EXPECT_DOUBLE_EQ(less.gain, (1 + less.kept) / (1 + static_cast<double>(less.k) * less.cost));
  EXPECT_EQ((*measure)->measure({none, none}).value().gain, 1);  // a trial leaves nothing behind
  const SkipGain again = (*measure)->measure({one, one}).value();
  EXPECT_EQ(again.gain, less.gain);
  EXPECT_FALSE(SkipMeasure::create(*model, {1, 2, 3}, {.threads = 1, .longest = 4, .window = 64}).ok());
  std::vector<TokenId> nonsense;
  for (int i = 0; i < 64; ++i) nonsense.push_back(static_cast<TokenId>(4000 - 31 * i));
  const auto refused = SkipMeasure::create(*model, nonsense, {.threads = 1, .longest = 4, .window = 64});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "text: the model would have written nothing of it; use a text like its own answers");
}

}  // namespace
}  // namespace millrace
