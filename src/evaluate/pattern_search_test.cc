// Patterns of heads: the choice among measured gains, and that what is measured is what the pattern keeps.
#include "evaluate/pattern_search.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "evaluate/scorer.h"
#include "models/kept_mass_observer.h"
#include "test_paths.h"

namespace millrace {
namespace {

TEST(PatternSearch, EachHeadGetsWhatKeepsMost) {
  const std::vector<std::vector<PatternGain>> gains = {
      {{"b3", 0.5, 0.2}, {"a4", 0.7, 0.3}, {"v2+1", 0.7, 0.2}},
      {{"b3", 0.4, 0.2}, {"a4", 0.1, 0.3}, {"v2+1", 0.6, 0.1}},
  };
  const ChosenPatterns own = choose_patterns(gains);
  EXPECT_EQ(own.text(), "a4.v2+1");
  EXPECT_DOUBLE_EQ(own.mass, 0.65);
  EXPECT_DOUBLE_EQ(own.keys, 0.2);
  const ChosenPatterns same = same_pattern(gains);
  EXPECT_EQ(same.text(), "v2+1.v2+1");
  EXPECT_DOUBLE_EQ(same.mass, 0.65);
}

TEST(PatternSearch, CandidatesSeeAboutAsManyBlocks) {
  EXPECT_EQ(candidate_heads({.window = 2, .last = 8, .blocks = 12}),
            (std::vector<std::string>{"b12", "a14", "v9+0", "v7+1", "v5+2", "v3+3", "v1+4"}));
  EXPECT_EQ(candidate_heads({.last = 8, .blocks = 3}), (std::vector<std::string>{"b3", "a4", "v0+0"}));
}

// Only the first layer gets patterns, since the attention of later ones depends on what earlier ones see.
TEST(PatternSearch, MeasuresWhatThePatternKeeps) {
  const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf";
  const auto model = LanguageModel::load(path, {.threads = 1, .context = 256});
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < 512; ++i)
    tokens.push_back(static_cast<TokenId>(philox_uniform(1, 2, i) * static_cast<double>((*model)->info().vocab)));
  const PatternSearchOptions options{.threads = 1, .context = 256, .block = 16, .last = 2, .blocks = 4};
  const auto gains = measure_patterns(*model, tokens, options);
  ASSERT_TRUE(gains.ok()) << gains.error().message;
  const auto first_heads = static_cast<size_t>((*model)->parts().model->spec().layers[0].kv_heads);
  for (size_t p = 0; p < gains->front().size(); ++p) {
    std::string text = "attention=minference:" + options.options() + ",heads=";
    double mass = 0, keys = 0;
    for (size_t h = 0; h < gains->size(); ++h) {
      const bool first = h < first_heads;
      text += (h > 0 ? "." : "") + (first ? (*gains)[h][p].head : std::string("a65536"));
      mass += (first ? (*gains)[h][p].mass : 1) / static_cast<double>(gains->size());
      keys += (first ? (*gains)[h][p].keys : 1) / static_cast<double>(gains->size());
    }
    SCOPED_TRACE(text);
    const auto scorer = Scorer::create(*model, {.threads = 1, .context = 256, .kernels = {text}});
    ASSERT_TRUE(scorer.ok()) << scorer.error().message;
    const KeptMassObserver kept((*scorer)->runner());
    ASSERT_TRUE(
        (*scorer)
            ->run(tokens, chunk_windows(512, 256), -1, [](std::span<const ScoredRow>) { return Result<void>(); })
            .ok());
    EXPECT_NEAR(kept.kept().mean_mass(), mass, 1e-5);
    EXPECT_NEAR(kept.kept().mean_keys(), keys, 1e-9);
    EXPECT_LT(keys, 1);
  }
}

TEST(PatternSearch, ErrorsAreExact) {
  const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf";
  const auto model = LanguageModel::load(path, {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok());
  const auto refused = measure_patterns(*model, std::vector<TokenId>(20), {.threads = 1, .context = 128});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "text: has 20 tokens, fewer than a window of 128; lower the context or give a longer text");
}

}  // namespace
}  // namespace millrace
