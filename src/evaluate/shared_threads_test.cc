// An engine, a scorer and an embedder of one model share its threads, in turns: each gets the bits that it gets alone.
#include <gtest/gtest.h>

#include <thread>

#include "evaluate/embedder.h"
#include "evaluate/scorer.h"
#include "run/executors/cpu_executor.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr int kThreads = 3;

class SharedThreadsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const LanguageModel> load() {
    auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                     {.threads = 1, .context = 64});
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    return model.ok() ? *model : nullptr;
  }
  std::vector<float> scores(Scorer& scorer) const {
    std::vector<float> out;
    const auto run = scorer.run(text_, chunk_windows(std::ssize(text_), 24), -1, [&](std::span<const ScoredRow> rows) {
      for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + scorer.vocab());
      return Result<void>();
    });
    EXPECT_TRUE(run.ok());
    return out;
  }
  std::vector<float> vectors(Embedder& embedder) const {
    std::vector<float> out;
    const std::vector<std::vector<TokenId>> texts = {{text_.begin(), text_.begin() + 40}, {5, 6, 7}};
    const auto run = embedder.run(texts, Pooling::mean, [&](size_t, std::vector<float> values) {
      out.insert(out.end(), values.begin(), values.end());
      return Result<void>();
    });
    EXPECT_TRUE(run.ok());
    return out;
  }
  void SetUp() override {
    for (TokenId i = 0; i < 96; ++i) text_.push_back(1 + i * 37 % 120);
    model_ = load();
    ASSERT_TRUE(model_);
  }

  std::vector<TokenId> text_;
  std::shared_ptr<const LanguageModel> model_;
};

TEST_F(SharedThreadsTest, OnePoolForAllThatAskForAsManyThreads) {
  EngineOptions options;
  options.threads = kThreads;
  const auto scorer = Scorer::create(model_, {.threads = kThreads, .context = 24});
  const auto embedder = Embedder::create(model_, {.threads = kThreads, .context = 48});
  const auto executor = CpuExecutor::create(model_, options);
  const auto other = Scorer::create(model_, {.threads = 1, .context = 24});
  ASSERT_TRUE(scorer.ok() && embedder.ok() && executor.ok() && other.ok());
  const auto pool = model_->parts().threads->get(kThreads);
  EXPECT_EQ(&(*scorer)->pool(), pool.get());
  EXPECT_EQ(pool.use_count(), 4);  // the three and this one
  EXPECT_NE(&(*other)->pool(), pool.get());
}

TEST_F(SharedThreadsTest, ThePoolEndsWithItsLastUser) {
  std::weak_ptr<ThreadPool> pool;
  {
    const auto scorer = Scorer::create(model_, {.threads = kThreads, .context = 24});
    ASSERT_TRUE(scorer.ok());
    pool = model_->parts().threads->get(kThreads);
    EXPECT_FALSE(pool.expired());
  }
  EXPECT_TRUE(pool.expired());
}

TEST_F(SharedThreadsTest, SharersGetTheBitsThatTheyGetAlone) {
  const auto make_scorer = [&] { return Scorer::create(model_, {.threads = kThreads, .context = 24}).value(); };
  const auto make_embedder = [&] { return Embedder::create(model_, {.threads = kThreads, .context = 48}).value(); };
  const std::vector<float> alone = scores(*make_scorer()), vector_alone = vectors(*make_embedder());
  ASSERT_FALSE(alone.empty());
  const auto first = make_scorer(), second = make_scorer();
  const auto embedder = make_embedder();
  std::vector<std::jthread> users;
  for (Scorer* scorer : {first.get(), second.get()})
    users.emplace_back([&, scorer] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(scores(*scorer), alone);
    });
  users.emplace_back([&] {
    for (int i = 0; i < 40; ++i) EXPECT_EQ(vectors(*embedder), vector_alone);
  });
}

}  // namespace
}  // namespace millrace
