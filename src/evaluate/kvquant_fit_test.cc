// Levels that are fitted to a text: less error than those for normal values, the same bits on any number of threads,
// and a model that works with them.
#include "evaluate/kvquant_fit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "evaluate/scorer.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::shared_ptr<const LanguageModel> model() {
  auto loaded = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/models/millrace-stories-6m.gguf",
                                    {.threads = 1, .context = 256});
  EXPECT_TRUE(loaded.ok());
  return loaded.ok() ? *loaded : nullptr;
}

// A story in the model's own words, twice as long as the fit reads.
std::vector<TokenId> story(const LanguageModel& model) {
  std::string text;
  const char* names[] = {"Lily", "Tom", "Ben", "Sue", "Max", "Mia"};
  const char* places[] = {"park", "lake", "forest", "garden", "shop"};
  for (int i = 0; i < 60; ++i)
    text += std::string("One day, ") + names[i % 6] + " went to the " + places[i % 5] + " with a " +
            (i % 2 ? "red ball" : "little dog") + ". They played all day and were very happy. ";
  return *model.encode(text);
}

TEST(KvQuantFit, LowersTheErrorOfEveryLayer) {
  const auto stories = model();
  const std::vector<TokenId> tokens = story(*stories);
  ASSERT_GT(tokens.size(), 1024u);
  KvQuantFitOptions options{.threads = 1, .context = 256, .shape = {.bits = 2, .group = 32}};
  const auto one = fit_kvquant_levels(stories, std::span(tokens).first(512), options);
  ASSERT_TRUE(one.ok()) << one.error().message;
  options.threads = 2;
  const auto two = fit_kvquant_levels(stories, std::span(tokens).first(512), options);
  EXPECT_EQ(one->levels.digest(), two->levels.digest());
  ASSERT_EQ(one->levels.layers.size(), 6u);
  for (size_t i = 0; i < one->keys.size(); ++i) {
    EXPECT_GT(one->keys[i].fitted, 0);
    EXPECT_LT(one->keys[i].fitted, one->keys[i].normal) << i;
    EXPECT_LT(one->values[i].fitted, one->values[i].normal) << i;
    for (const NormalCodes* codes : {&one->levels.layers[i].keys, &one->levels.layers[i].values})
      for (size_t c = 1; c < 4; ++c) EXPECT_LT((*codes)[c - 1], (*codes)[c]);
  }

  const std::string path =
      (std::filesystem::temp_directory_path() / ("kvquant_fit." + std::to_string(getpid()))).string();
  ASSERT_TRUE(write_kvquant_levels(path, one->levels, "stories").ok());
  const auto scorer =
      Scorer::create(stories, {.threads = 1, .context = 256, .kv_format = "kvquant:group=32,levels=" + path});
  ASSERT_TRUE(scorer.ok()) << scorer.error().message;
  const auto windows = chunk_windows(256, 256);
  int64_t rows = 0;
  ASSERT_TRUE((*scorer)
                  ->run(std::span(tokens).last(256), windows, -1,
                        [&](std::span<const ScoredRow> scored) {
                          rows += std::ssize(scored);
                          return Result<void>();
                        })
                  .ok());
  EXPECT_EQ(rows, 127);
  std::filesystem::remove(path);
}

TEST(KvQuantFit, ShortTextsAreRefused) {
  const auto fit = fit_kvquant_levels(model(), std::vector<TokenId>(100, 5), {.context = 256});
  ASSERT_FALSE(fit.ok());
  EXPECT_EQ(fit.error().message,
            "text: has 100 tokens, fewer than a window of 256; lower the context or give a longer text");
}

}  // namespace
}  // namespace millrace
