// Documents of a text on a tiny model: scores against those by hand, and what the search of weights finds.
#include "compare/document_cases.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compare/document_search.h"
#include "compare/suite_run.h"
#include "evaluate/divergence.h"
#include "model_runner.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::string model_path() { return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf"; }

std::string text_of(int sentences) {
  std::string text;
  for (int i = 0; i < sentences; ++i) text += "Number " + std::to_string(i * 37) + " comes after another one. ";
  return text;
}

class DocumentCases : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = LanguageModel::load(model_path(), {.threads = 1, .context = 300});
    ASSERT_TRUE(loaded.ok());
    model_ = *loaded;
    auto tokens = model_->encode(text_of(40), true, false);
    ASSERT_TRUE(tokens.ok());
    tokens_ = *tokens;
    EngineOptions options;
    options.threads = 1;
    options.context = 300;
    options.kv_tokens = 2048;
    options.kv_format = "f32";
    auto engine = Engine::create(model_, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(*engine);
  }
  std::vector<float> predict(const DocumentCase& one, const std::string& context) {
    auto rows = predict_behind(*engine_, one, context, model_->info().vocab, [] { return true; });
    EXPECT_TRUE(rows.ok()) << (rows.ok() ? "" : rows.error().message);
    return rows.ok() ? *rows : std::vector<float>();
  }

  std::shared_ptr<const LanguageModel> model_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DocumentCases, AreDisjointPiecesOfTheText) {
  const DocumentCut cut{.documents = 3, .size = 10, .scored = 5};
  EXPECT_EQ(cut.tokens(), 36);
  const auto cases = cut_documents(*model_, tokens_, cut, 4);
  ASSERT_EQ(cases.size(), 4u);
  const auto& spec = model_->parts().tokenizer->spec();
  const bool starts = spec.add_bos && spec.bos;
  const auto start = static_cast<size_t>(starts);
  for (size_t i = 0; i < cases.size(); ++i) {
    const DocumentCase& one = cases[i];
    ASSERT_EQ(one.prompt.size(), start + 36);
    if (starts) {
      EXPECT_EQ(one.prompt.front(), *spec.bos);
    }
    for (size_t t = 0; t < 36; ++t) EXPECT_EQ(one.prompt[start + t], tokens_[start + 36 * i + t]);
    ASSERT_EQ(one.documents.size(), 3u);
    for (int64_t d = 0; d < 3; ++d) {
      EXPECT_EQ(one.documents[static_cast<size_t>(d)].begin, static_cast<int64_t>(start) + 10 * d);
      EXPECT_EQ(one.documents[static_cast<size_t>(d)].end, static_cast<int64_t>(start) + 10 * (d + 1));
    }
    EXPECT_EQ(one.scored, 5);
  }
  EXPECT_TRUE(cut_documents(*model_, std::span(tokens_).first(start + 35), cut, 4).empty());
}

TEST_F(DocumentCases, PredictionsOfAPlainPromptAreTheModels) {
  const DocumentCase one = cut_documents(*model_, tokens_, {.documents = 3, .size = 10, .scored = 5}, 1).front();
  const auto rows = predict(one, "none");
  auto runner = *testing::TestRunner::load(model_path(), {.context = 128});
  const auto logits = runner->logits(one.prompt);
  const int64_t vocab = model_->info().vocab, first = std::ssize(one.prompt) - 5;
  std::vector<float> by_hand(static_cast<size_t>(vocab));
  double nll = 0;
  ASSERT_EQ(std::ssize(rows), 5 * vocab);
  for (int64_t i = 0; i < 5; ++i) {
    log_softmax(logits.data() + (first + i - 1) * vocab, vocab, by_hand.data());
    for (int64_t v = 0; v < vocab; ++v)
      ASSERT_EQ(rows[static_cast<size_t>(i * vocab + v)], by_hand[static_cast<size_t>(v)]);
    nll -= static_cast<double>(by_hand[static_cast<size_t>(one.prompt[static_cast<size_t>(first + i)])]);
  }
  const DocumentScore score = score_behind(one, rows, rows);
  EXPECT_NEAR(score.nll, nll / 5, 1e-12);
  EXPECT_EQ(score.kl, 0);
  EXPECT_EQ(score.same_top, 1);
}

TEST_F(DocumentCases, ContextsThatChangeNothingScoreLikeAPlainPrompt) {
  const DocumentCase one = cut_documents(*model_, tokens_, {.documents = 3, .size = 10, .scored = 5}, 1).front();
  const auto plain = predict(one, "none");
  EXPECT_EQ(predict(one, "cacheblend:ratio=1"), plain);
  const auto alone = predict(one, "independent");
  EXPECT_NE(alone, plain);
  EXPECT_GT(score_behind(one, plain, alone).kl, 0);
  EXPECT_EQ(predict(one, "independent"), alone);  // with documents from the cache
}

TEST_F(DocumentCases, TheSearchFindsTheLeastDivergence) {
  DocumentSearchOptions options;
  options.threads = 1;
  options.cut = {.documents = 3, .size = 10, .scored = 5};
  options.cases = 3;
  options.temperatures = {1, 0.8};
  options.scales = {1, 0.7};
  options.kv_format = "f32";
  const auto found = search_document_weights(model_, tokens_, options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->cases, 3);
  ASSERT_EQ(found->grid.size(), 4u);
  EXPECT_EQ(found->neutral, 0u);
  const auto cases = cut_documents(*model_, tokens_, options.cut, 3);
  double plain_nll = 0;
  for (const DocumentCase& one : cases) {
    const auto plain = predict(one, "none");
    plain_nll += score_behind(one, plain, plain).nll / 3;
  }
  EXPECT_NEAR(found->plain_nll, plain_nll, 1e-12);
  for (const ScoredWeights& pair : found->grid) {
    double kl = 0;
    for (const DocumentCase& one : cases)
      kl += score_behind(one, predict(one, "none"), predict(one, pair.use().substr(8))).kl / 3;
    EXPECT_NEAR(pair.score.kl, kl, 1e-12) << pair.use();
    EXPECT_GE(pair.score.kl, found->grid[found->best].score.kl);
  }
  EXPECT_EQ(found->grid[3].use(), "context=ape:T=0.8,S=0.7");
}

TEST_F(DocumentCases, TheSearchSaysWhatIsWrong) {
  const auto error = [&](DocumentSearchOptions options, std::span<const TokenId> tokens) {
    options.threads = 1;
    const auto found = search_document_weights(model_, tokens, options);
    return found.ok() ? "" : found.error().message;
  };
  DocumentSearchOptions options;
  options.cut = {.documents = 3, .size = 10, .scored = 5};
  EXPECT_EQ(error(options, std::span(tokens_).first(20)),
            "text: has 20 tokens, fewer than the 36 of 3 documents and what follows");
  options.temperatures = {2};
  EXPECT_NE(error(options, tokens_).find("T"), std::string::npos);
  options.temperatures = {};
  EXPECT_EQ(error(options, tokens_), "grid: needs a temperature and a scale at least");
}

TEST_F(DocumentCases, TheSuiteComparesContexts) {
  std::vector<CompareConfig> configs;
  for (const char* text : {"kv_format=f32", "context=independent", "context=cacheblend:ratio=1"}) {
    const auto spec = parse_compare_spec(text);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EngineOptions engine;
    engine.threads = 1;
    engine.kv_format = "f32";
    auto config = make_compare_config(*spec, engine, [&](const CompareSpec&, const LoadOptions&) {
      return Result<std::shared_ptr<const LanguageModel>>(model_);
    });
    ASSERT_TRUE(config.ok()) << config.error().message;
    configs.push_back(std::move(*config));
  }
  SuiteInput input;
  input.threads = 1;
  EXPECT_EQ(begin_suite("documents:0", configs, input).error().message,
            "suite documents:0: needs a text; name it by --text FILE");
  input.text = text_of(60);
  input.items = 2;
  EXPECT_EQ(begin_suite("documents:0", configs, input).error().message,
            "suite documents:0: '0' is no number of documents; must be 1 to 64");
  EXPECT_EQ(begin_suite("documents:2", configs, input).error().message,
            "suite documents:2: 2 documents of 128 tokens and 128 behind them do not fit the context of 300");
  auto run = begin_suite("documents:1", configs, input);
  ASSERT_TRUE(run.ok()) << run.error().message;
  CompareJournal journal;
  const auto values = run_suite(**run, configs, journal, [](double) { return true; });
  ASSERT_TRUE(values.ok()) << values.error().message;
  const DocumentCase first = cut_documents(*model_, *model_->encode(input.text, true, false), {.documents = 1}, 1)[0];
  const auto plain = predict(first, "none"), alone = predict(first, "independent");
  const auto expect = [&](size_t config, const DocumentScore& score) {
    const auto& measured = *values->values[config][0];
    EXPECT_DOUBLE_EQ(measured[0], score.nll);
    EXPECT_DOUBLE_EQ(measured[1], score.kl);
    EXPECT_DOUBLE_EQ(measured[2], score.same_top);
  };
  expect(0, score_behind(first, plain, plain));
  expect(1, score_behind(first, plain, alone));
  expect(2, score_behind(first, plain, plain));  // computes all documents again
}

}  // namespace
}  // namespace millrace
