// Windows of heads: the choice among measured gains, and that what is measured is what the pattern keeps.
#include "evaluate/window_search.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "evaluate/scorer.h"
#include "models/kept_mass_observer.h"
#include "test_paths.h"

namespace millrace {
namespace {

// Windows of 1, 2 and 4 blocks that see 10, 20 and 40 % of the keys.
std::vector<WindowGain> gains_of(double one, double two, double four) {
  return {{{1, 0}, one, 0.1}, {{2, 0}, two, 0.2}, {{4, 0}, four, 0.4}};
}

TEST(WindowSearch, KeysGoWhereTheyKeepMost) {
  const std::vector<std::vector<WindowGain>> gains = {gains_of(0.9, 0.95, 0.97), gains_of(0.1, 0.2, 0.8)};
  EXPECT_EQ(choose_windows(gains, 0.1).text(), "1.1");
  EXPECT_EQ(choose_windows(gains, 0.26).text(), "1.4");
  const ChosenWindows chosen = choose_windows(gains, 0.31);
  EXPECT_EQ(chosen.text(), "2.4");
  EXPECT_DOUBLE_EQ(chosen.mass, (0.95 + 0.8) / 2);
  EXPECT_DOUBLE_EQ(chosen.keys, (0.2 + 0.4) / 2);
  EXPECT_EQ(choose_windows(gains, 1).text(), "4.4");
  EXPECT_EQ(choose_windows(gains, 0).text(), "1.1");  // there is no less
  EXPECT_EQ(same_window(gains, 0.3).text(), "2.2");
}

// Only the first layer gets windows, since the attention of later ones depends on what earlier ones see.
TEST(WindowSearch, MeasuresWhatThePatternKeeps) {
  const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf";
  const auto model = LanguageModel::load(path, {.threads = 1, .context = 256});
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < 512; ++i)
    tokens.push_back(static_cast<TokenId>(philox_uniform(1, 2, i) * static_cast<double>((*model)->info().vocab)));
  const WindowSearchOptions options{.threads = 1, .context = 256, .block = 32, .sinks = 1};
  const auto gains = measure_windows(*model, tokens, options);
  ASSERT_TRUE(gains.ok()) << gains.error().message;
  const auto& layers = (*model)->parts().model->spec().layers;
  const auto first_heads = static_cast<size_t>(layers[0].kv_heads);
  for (size_t w : {size_t{1}, size_t{2}}) {
    std::string text = "attention=semsa:block=32,sinks=1,windows=";
    double mass = 0, keys = 0;
    for (size_t h = 0; h < gains->size(); ++h) {
      const bool first = h < first_heads;
      text += (h > 0 ? "." : "") + (first ? (*gains)[h][w].window.text() : std::string("65536"));
      mass += (first ? (*gains)[h][w].mass : 1) / static_cast<double>(gains->size());
      keys += (first ? (*gains)[h][w].keys : 1) / static_cast<double>(gains->size());
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

TEST(WindowSearch, ErrorsAreExact) {
  const std::string path = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf";
  const auto model = LanguageModel::load(path, {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok());
  const auto refused = measure_windows(*model, std::vector<TokenId>(20), {.threads = 1, .context = 128});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "text: has 20 tokens, fewer than a window of 128; lower the context or give a longer text");
}

}  // namespace
}  // namespace millrace
