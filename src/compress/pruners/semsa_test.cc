// The pass semsa: the file has the windows that the search finds, its weights are the input's, and `attention=semsa`
// without options means these windows.
#include <cstring>

#include "base/ordered_json.h"
#include "compress/compress.h"
#include "contains.h"
#include "evaluate/scorer.h"
#include "evaluate/window_search.h"
#include "run/plan/stored_pattern.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

std::shared_ptr<const LanguageModel> load_windows(const std::string& path) {
  auto model = LanguageModel::load(path, {.threads = 1, .context = 64});
  EXPECT_TRUE(model.ok()) << path << ": " << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

// Exact logits of a text with this pattern; "": with none.
std::vector<float> pattern_logits(const std::shared_ptr<const LanguageModel>& model, const std::string& pattern) {
  ScorerOptions options{.threads = 1, .context = 64};
  if (!pattern.empty()) options.kernels = {"attention=" + pattern};
  auto scorer = Scorer::create(model, options);
  EXPECT_TRUE(scorer.ok()) << pattern << ": " << (scorer.ok() ? "" : scorer.error().message);
  std::vector<TokenId> tokens;
  for (int i = 0; i < 64; ++i) tokens.push_back(i * 7 % 90 + 3);
  std::vector<float> out;
  const auto vocab = static_cast<size_t>(model->info().vocab);
  const auto keep = [&](std::span<const ScoredRow> rows) {
    for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + vocab);
    return Result<void>();
  };
  EXPECT_TRUE((*scorer)->run(tokens, chunk_windows(64, 64), -1, keep).ok());
  return out;
}

TEST(SemSaPass, StoresTheWindowsThatASearchFinds) {
  const std::string input = golden_gguf("llama3");
  const ScratchModel out;
  const CompressOptions options = short_compression(input, out.path(), "semsa:keys=0.6,block=16,sinks=0");
  const auto done = compress_model(options);
  ASSERT_TRUE(done.ok()) << done.error().message;

  const auto before = load_windows(input), after = load_windows(out.path());
  ASSERT_TRUE(before && after);
  auto tokens = before->encode(options.calibration.text);
  ASSERT_TRUE(tokens.ok());
  tokens->resize(6 * 64);
  const auto gains = measure_windows(before, *tokens, {.threads = 1, .context = 64, .block = 16, .sinks = 0});
  ASSERT_TRUE(gains.ok()) << gains.error().message;
  const ChosenWindows found = choose_windows(*gains, 0.6);
  const std::string windows = "block=16,sinks=0,windows=" + found.text();
  EXPECT_EQ(after->parts().files->config->value(stored_pattern_key("semsa"), ""), windows);
  EXPECT_NE(found.text().find_first_not_of("1."), std::string::npos) << "all windows are the smallest";
  ASSERT_EQ(done->structure.size(), 1u);
  EXPECT_EQ(done->structure[0].second.why, found.text());

  EXPECT_EQ(pattern_logits(after, ""), pattern_logits(before, ""));
  const auto stored = pattern_logits(after, "semsa");
  EXPECT_EQ(stored, pattern_logits(before, "semsa:" + windows));
  EXPECT_NE(stored, pattern_logits(before, ""));
  EXPECT_EQ(pattern_logits(after, "semsa:block=16,windows=1"), pattern_logits(before, "semsa:block=16,windows=1"));
}

// Whatever is written from such a file has the windows, as long as they fit.
TEST(SemSaPass, LaterPassesKeepTheWindowsOfTheLayersThatStay) {
  const ScratchModel first, second, third;
  ASSERT_TRUE(compress_model(short_compression(golden_gguf("llama3"), first.path(), "semsa:block=16")).ok());
  ASSERT_TRUE(compress_model(short_compression(first.path(), second.path(), "rtn")).ok());
  ASSERT_TRUE(compress_model(short_compression(first.path(), third.path(), "shortgpt")).ok());
  const auto stored = [](const ScratchModel& model) {
    const auto loaded = load_windows(model.path());
    return loaded ? loaded->parts().files->config->value(stored_pattern_key("semsa"), "") : "";
  };
  EXPECT_CONTAINS(stored(first), "block=16,sinks=1,windows=");
  EXPECT_EQ(stored(second), stored(first));
  EXPECT_EQ(stored(third), "");
}

TEST(SemSaPass, SaysWhatIsWrong) {
  const ScratchModel out;
  const auto done = compress_model(short_compression(golden_gguf("gemma3"), out.path(), "semsa"));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "--pass semsa: some layers of this model do not see every key");
}

}  // namespace
}  // namespace millrace
