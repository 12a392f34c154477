// Windows, sums that do not depend on how a text is batched, saved log-probabilities and divergence.
#include "evaluate/scorer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/philox.h"
#include "evaluate/divergence.h"
#include "evaluate/logits_file.h"
#include "sampling/logprobs.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::string temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() / ("millrace_" + std::to_string(getpid()) + "_" + name);
}

TEST(Windows, ChunksScoreTheirSecondHalf) {
  EXPECT_EQ(chunk_windows(20, 8), (std::vector<ScoreWindow>{{0, 8, 5}, {8, 8, 5}}));
  EXPECT_TRUE(chunk_windows(7, 8).empty());
  EXPECT_TRUE(chunk_windows(7, 0).empty());
}

TEST(Windows, StridesScoreOnlyNewTokens) {
  EXPECT_EQ(strided_windows(12, 8, 2), (std::vector<ScoreWindow>{{0, 8, 6}, {2, 8, 6}, {4, 8, 6}}));
  EXPECT_EQ(strided_windows(8, 8, 100), (std::vector<ScoreWindow>{{0, 8, 1}}));
}

TEST(Windows, DocumentsScoreEveryTokenButTheFirstOnce) {
  for (int64_t context : {2, 3, 8, 9, 100}) {
    for (int64_t tokens = 2; tokens < 40; ++tokens) {
      std::vector<int> scored(static_cast<size_t>(tokens));
      for (const ScoreWindow& w : document_windows(tokens, context)) {
        ASSERT_LE(w.count, context);
        ASSERT_GE(w.first_scored, 1);
        for (int64_t i = w.first_scored; i < w.count; ++i) ++scored.at(static_cast<size_t>(w.begin + i));
      }
      EXPECT_EQ(scored[0], 0);
      for (size_t i = 1; i < scored.size(); ++i)
        EXPECT_EQ(scored[i], 1) << i << " of " << tokens << ", context " << context;
    }
  }
}

std::shared_ptr<const LanguageModel> golden_scores() {
  auto model =
      LanguageModel::load(MILLRACE_SOURCE_DIR "/tests/golden/llama3/model.gguf", {.threads = 1, .context = 32});
  return model.ok() ? *model : nullptr;
}

// Many windows that are far shorter than the context share a batch.
TEST(Scorer, ShortWindowsDoNotShareTheirPlaces) {
  const auto model = golden_scores();
  ASSERT_TRUE(model);
  std::vector<TokenId> tokens;
  std::vector<ScoreWindow> windows;
  for (int64_t i = 0; i < 100; ++i) {
    windows.push_back({std::ssize(tokens), 3 + i % 4, 1});
    for (int64_t t = 0; t < windows.back().count; ++t)
      tokens.push_back(static_cast<TokenId>((i * 7 + t * 13) % model->info().vocab));
  }
  const auto logits_of = [&](Scorer& scorer, std::span<const ScoreWindow> some) {
    std::vector<float> out;
    const auto run = scorer.run(tokens, some, -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + scorer.vocab());
      return {};
    });
    EXPECT_TRUE(run.ok()) << run.error().message;
    return out;
  };
  auto scorer = Scorer::create(model, {.threads = 1, .context = 32});
  ASSERT_TRUE(scorer.ok()) << scorer.error().message;
  std::vector<float> alone;
  for (const ScoreWindow& window : windows) {
    const auto logits = logits_of(**scorer, std::span(&window, 1));
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  EXPECT_EQ(logits_of(**scorer, windows), alone);
}

TEST(Scorer, ResultsDoNotDependOnBatches) {
  const auto model = golden_scores();
  ASSERT_TRUE(model);
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < 75; ++i)
    tokens.push_back(static_cast<TokenId>(philox_uniform(1, 2, i) * static_cast<double>(model->info().vocab)));
  const auto windows = document_windows(75, 16);
  std::vector<float> expected;
  for (int64_t batch : {512, 1, 7, 16, 40}) {
    auto scorer = Scorer::create(model, {.threads = 1, .context = 16, .batch_tokens = batch});
    ASSERT_TRUE(scorer.ok()) << scorer.error().message;
    std::vector<float> logits;
    std::vector<TokenId> targets;
    auto done = (*scorer)->run(tokens, windows, 1, [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) {
        logits.insert(logits.end(), row.logits, row.logits + model->info().vocab);
        targets.push_back(row.target);
      }
      return {};
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(targets, std::vector<TokenId>(tokens.begin() + 1, tokens.end()));  // in text order
    if (expected.empty()) expected = logits;
    ASSERT_EQ(logits.size(), expected.size());
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * 4), 0) << batch;
  }
}

TEST(Scorer, RejectsInvalidInput) {
  const auto model = golden_scores();
  ASSERT_TRUE(model);
  EXPECT_FALSE(Scorer::create(model, {.threads = 1, .context = 1}).ok());
  EXPECT_FALSE(Scorer::create(model, {.threads = 1, .context = 33}).ok());
  EXPECT_FALSE(Scorer::create(model, {.threads = 1, .context = 16, .kv_format = "q9"}).ok());
  auto scorer = Scorer::create(model, {.threads = 1, .context = 16});
  ASSERT_TRUE(scorer.ok());
  auto run = [&](std::vector<TokenId> tokens, ScoreWindow window, TokenId start) {
    return (*scorer)->run(tokens, std::vector{window}, start, [](auto) { return Result<void>(); }).ok();
  };
  EXPECT_TRUE(run({1, 2, 3}, {0, 3, 1}, -1));
  EXPECT_FALSE(run({1, -2, 3}, {0, 3, 1}, -1));
  EXPECT_FALSE(run({1, 2, 1 << 20}, {0, 3, 1}, -1));
  EXPECT_FALSE(run({1, 2, 3}, {0, 3, 1}, 1 << 20));
  EXPECT_FALSE(run({1, 2, 3}, {1, 3, 1}, -1));
  EXPECT_FALSE(run({1, 2, 3}, {0, 3, 0}, -1));
  EXPECT_FALSE(run(std::vector<TokenId>(40, 1), {0, 17, 1}, -1));
  auto stopped = (*scorer)->run(std::vector<TokenId>{1, 2}, std::vector<ScoreWindow>{{0, 2, 1}}, -1,
                                [](auto) { return Result<void>(Error::cancelled("stop")); });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
}

TEST(LogitsFile, RoundTrips) {
  const std::string path = temporary("saved.logits");
  const std::vector<float> row = {-0.5f, -1.25f, -std::numeric_limits<float>::infinity(), -3.0f};
  for (LogitsElement element : {LogitsElement::f32, LogitsElement::f16}) {
    {
      auto writer = LogitsWriter::create(path, element, 4, 2);
      ASSERT_TRUE(writer.ok()) << writer.error().message;
      ASSERT_TRUE(writer->add(3, row.data()).ok());
      ASSERT_TRUE(writer->add(1, row.data()).ok());
      ASSERT_TRUE(writer->finish().ok());
    }
    auto reader = LogitsReader::open(path);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_EQ(reader->vocab(), 4);
    EXPECT_EQ(reader->rows(), 2);
    TokenId target = 0;
    std::vector<float> read(4);
    ASSERT_TRUE(reader->next(&target, read.data()).ok());
    EXPECT_EQ(target, 3);
    EXPECT_EQ(read, (std::vector<float>{-0.5f, -1.25f, -65504.0f, -3.0f}));
    ASSERT_TRUE(reader->next(&target, read.data()).ok());
    EXPECT_FALSE(reader->next(&target, read.data()).ok());
  }
  // Every truncation and every false header is rejected.
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  auto refused = [&](const std::string& changed) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    return !LogitsReader::open(path).ok();
  };
  for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_TRUE(refused(bytes.substr(0, cut))) << cut;
  for (size_t at : {0, 8, 12, 16, 20, 23, 24, 31}) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] + 7);
    EXPECT_TRUE(refused(changed)) << at;
  }
  EXPECT_TRUE(refused(bytes.substr(0, 24) + std::string(8, 0)));  // without rows the vocabulary size cannot be trusted
  EXPECT_FALSE(refused(bytes));
  std::filesystem::remove(path);
}

TEST(LogitsFile, UnfinishedFileIsRemoved) {
  const std::string path = temporary("unfinished.logits");
  {
    auto writer = LogitsWriter::create(path, LogitsElement::f32, 4, 2);
    ASSERT_TRUE(writer.ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(Divergence, KnownDistributions) {
  const std::vector<float> a = {std::log(0.5f), std::log(0.25f), std::log(0.25f)},
                           b = {std::log(0.25f), std::log(0.5f), std::log(0.25f)};
  std::vector<float> p(3), q(3);
  log_softmax(a.data(), 3, p.data());
  log_softmax(b.data(), 3, q.data());
  const TokenDivergence same = compare_rows(p.data(), p.data(), 3, 0), other = compare_rows(p.data(), q.data(), 3, 0);
  EXPECT_NEAR(same.kl, 0, 1e-7);
  EXPECT_TRUE(same.same_top);
  EXPECT_NEAR(other.kl, 0.5 * std::log(2.0) - 0.25 * std::log(2.0), 1e-6);
  EXPECT_FALSE(other.same_top);
  EXPECT_NEAR(other.probability_change, -0.25, 1e-6);
  EXPECT_NEAR(other.reference_nll, std::log(2.0), 1e-6);
  const DivergenceSummary sum = summarize({same, other});
  EXPECT_NEAR(sum.kl_mean, other.kl / 2, 1e-6);
  EXPECT_NEAR(sum.kl_median, other.kl / 2, 1e-6);
  EXPECT_DOUBLE_EQ(sum.same_top, 0.5);
  EXPECT_NEAR(sum.probability_change_rms, 0.25 / std::sqrt(2.0), 1e-6);
  EXPECT_EQ(summarize({}).kl_max, 0);
}

TEST(Divergence, NonFiniteLogitsHaveNoProbability) {
  const std::vector<float> logits = {0, std::nanf(""), -std::numeric_limits<float>::infinity()};
  std::vector<float> p(3);
  log_softmax(logits.data(), 3, p.data());
  EXPECT_EQ(p[0], 0.0f);
  EXPECT_TRUE(std::isinf(p[1]) && p[1] < 0);
  EXPECT_TRUE(std::isinf(p[2]) && p[2] < 0);
}

}  // namespace
}  // namespace millrace
