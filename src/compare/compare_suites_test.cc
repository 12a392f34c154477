// Suites on a tiny model: scores against those computed by hand from its logits, the same bits each time, resumed and
// interrupted runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "compare/answer_suite.h"
#include "compare/likelihood.h"
#include "compare/suite_run.h"
#include "compare/suite_text.h"
#include "compare/unseen.h"
#include "model_runner.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr int64_t kContext = 64;

std::string toy_path() { return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf"; }

std::shared_ptr<const LanguageModel> toy_model(int64_t context = kContext) {
  auto model = LanguageModel::load(toy_path(), {.threads = 1, .context = context});
  return model.ok() ? *model : nullptr;
}

// The model as it is with a cache in f32, and these.
std::vector<CompareConfig> toy_configs(std::vector<std::string> with, int64_t context = kContext) {
  with.insert(with.begin(), "kv_format=f32");
  const auto model = toy_model(context);
  std::vector<CompareConfig> out;
  for (const std::string& text : with) {
    const auto spec = parse_compare_spec(text);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    EngineOptions engine;
    engine.threads = 1;
    auto config = make_compare_config(*spec, engine, [&](const CompareSpec&, const LoadOptions&) {
      return Result<std::shared_ptr<const LanguageModel>>(model);
    });
    EXPECT_TRUE(config.ok()) << config.error().message;
    out.push_back(std::move(*config));
  }
  return out;
}

SuiteValues run_whole(const std::string& suite, std::span<const CompareConfig> configs, const SuiteInput& input,
                      CompareJournal& journal) {
  auto run = begin_suite(suite, configs, input);
  if (!run.ok()) {
    ADD_FAILURE() << run.error().message;
    return {};
  }
  auto values = run_suite(**run, configs, journal, [](double) { return true; });
  if (values.ok()) return *values;
  ADD_FAILURE() << values.error().message;
  return {};
}

std::string suite_error(const std::string& suite, std::span<const CompareConfig> configs,
                        const SuiteInput& input = {}) {
  const auto run = begin_suite(suite, configs, input);
  return run.ok() ? "" : run.error().message;
}

std::string toy_text() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The number " + std::to_string(i * 37) + " comes after another one. ";
  return text;
}

// Of the tokens from `from` on, from all logits of the text.
ContinuationScore by_hand(const std::vector<TokenId>& tokens, int64_t from) {
  auto runner = *testing::TestRunner::load(toy_path(), {.context = kContext});
  const std::vector<float> logits = runner->logits(tokens);
  const int64_t vocab = runner->model().spec().vocab;
  ContinuationScore out{0, std::ssize(tokens) - from, true};
  for (int64_t t = from; t < std::ssize(tokens); ++t) {
    const float* row = logits.data() + (t - 1) * vocab;
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]));
    out.log_likelihood += static_cast<double>(row[tokens[static_cast<size_t>(t)]]) - std::log(sum);
    for (int64_t v = 0; v < vocab; ++v) out.greedy &= row[v] <= row[tokens[static_cast<size_t>(t)]];
  }
  return out;
}

TEST(Likelihood, IsThatOfTheLogits) {
  const auto configs = toy_configs({});
  LikelihoodScorers scorers(configs, 1);
  const std::vector<Continuation> all = {{"The cat sat on", " the mat."}, {"One two ", "three"}, {"a", "b"}};
  const auto scores = scorers.score(0, all, [] { return true; });
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto encoded = encode_continuation(*configs[0].model, all[i], kContext);
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    const ContinuationScore expected = by_hand(encoded->tokens, encoded->from);
    EXPECT_NEAR((*scores)[i].log_likelihood, expected.log_likelihood, 1e-5);
    EXPECT_EQ((*scores)[i].greedy, expected.greedy);
    EXPECT_EQ((*scores)[i].tokens, expected.tokens);
  }
}

// More of them in one batch than the scorer has room for whole windows.
TEST(Likelihood, ManyAtOnceAreAsOneByOne) {
  const auto configs = toy_configs({});
  std::vector<Continuation> all = {{toy_text().substr(0, 50), " end"}};
  for (int i = 0; i < 60; ++i) all.push_back({"Item " + std::to_string(i), " is"});
  LikelihoodScorers together(configs, 2), alone(configs, 1);
  const auto scores = together.score(0, all, [] { return true; });
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto one = alone.score(0, std::span(&all[i], 1), [] { return true; });
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ((*scores)[i].log_likelihood, (*one)[0].log_likelihood) << i;
  }
}

TEST(Likelihood, SpacesBelongToTheContinuation) {
  const auto model = toy_model();
  const auto a = encode_continuation(*model, {"One two ", "three"}, kContext);
  const auto b = encode_continuation(*model, {"One two", " three"}, kContext);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->tokens, b->tokens);
  EXPECT_EQ(a->from, b->from);
  const auto cut = encode_continuation(*model, {"One two", " three"}, std::ssize(b->tokens) - 1);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->from, b->from - 1);
  EXPECT_EQ(cut->tokens, std::vector<TokenId>(b->tokens.begin() + 1, b->tokens.end()));
  EXPECT_FALSE(encode_continuation(*model, {"One two", ""}, kContext).ok());
  EXPECT_FALSE(encode_continuation(*model, {"One two", " three"}, 1).ok());
}

TEST(Suites, PerplexityIsThatOfTheLogits) {
  const auto configs = toy_configs({"kv_format=bf16"});
  SuiteInput input;
  input.text = toy_text();
  input.items = 3;
  CompareJournal journal;
  const SuiteValues values = run_whole("perplexity:32", configs, input, journal);
  const auto tokens = *configs[0].model->encode(input.text, true, false);
  const auto& spec = configs[0].model->parts().tokenizer->spec();
  for (size_t window = 0; window < 3; ++window) {
    std::vector<TokenId> part(tokens.begin() + static_cast<std::ptrdiff_t>(32 * window),
                              tokens.begin() + static_cast<std::ptrdiff_t>(32 * window + 32));
    if (spec.add_bos && spec.bos) part[0] = *spec.bos;
    const ContinuationScore expected = by_hand(part, 17);
    EXPECT_NEAR((*values.values[0][window])[0], -expected.log_likelihood / 15, 1e-5);
    EXPECT_EQ((*values.values[0][window])[1], 0);
    EXPECT_GT((*values.values[1][window])[1], 0);  // another cache format
    EXPECT_LT((*values.values[1][window])[1], 0.1);
  }
  const auto figures = suite_figures(values);
  EXPECT_EQ(figures[0][0].metric, "perplexity");
  EXPECT_EQ(figures[0][0].items, 3);
  const double mean = ((*values.values[0][0])[0] + (*values.values[0][1])[0] + (*values.values[0][2])[0]) / 3;
  EXPECT_DOUBLE_EQ(figures[0][0].interval.value, std::exp(mean));
  EXPECT_EQ(figures[0][0].difference.high, 0);
  EXPECT_EQ(figures[1][1].more_is_better, false);
}

// A draft with exact acceptance changes nothing, an evictor does, and each is the same bits in every run.
TEST(Suites, AnswersAreTheSameEachTime) {
  const auto configs = toy_configs({"drafter=ngram", "evictor=streamingllm:sinks=1,window=7,slack=2"});
  std::vector<AnswerRequest> requests(2);
  requests[0].text = "one two three one two three one two";
  requests[1].messages = user_message("The cat sat on the mat");
  for (AnswerRequest& request : requests) request.max_tokens = 24;
  std::vector<std::vector<std::vector<TokenId>>> runs;
  for (int64_t streams : {1, 4}) {
    AnswerEngines engines(configs, streams, kContext);
    runs.emplace_back();
    for (size_t config = 0; config < configs.size(); ++config) {
      const auto answers = engines.answer(config, requests, [] { return true; });
      ASSERT_TRUE(answers.ok()) << answers.error().message;
      runs.back().push_back((*answers)[0].tokens);
      runs.back().push_back((*answers)[1].tokens);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0][0], runs[0][2]);
  EXPECT_EQ(runs[0][1], runs[0][3]);
  EXPECT_NE(std::pair(runs[0][0], runs[0][1]), std::pair(runs[0][4], runs[0][5]));
}

// Scores the length of the answer's text, so that every change shows.
Result<std::unique_ptr<SuiteRun>> toy_suite(std::span<const CompareConfig> configs, int64_t items) {
  std::vector<AnswerQuestion> questions;
  for (int i = 0; i < 40; ++i) {
    AnswerQuestion question;
    question.request.text = "Question " + std::to_string(i) + ":";
    question.request.max_tokens = 6;
    question.group = i % 2 ? "odd" : "even";
    question.score = [](const std::string& given) { return static_cast<double>(given.size()); };
    questions.push_back(std::move(question));
  }
  SuiteInput input;
  input.items = items;
  return begin_answer_suite(configs, input, "toy", "length", std::move(questions), 1);
}

TEST(Suites, AnInterruptedRunIsContinued) {
  const auto configs = toy_configs({"kv_format=bf16"});
  const std::string path =
      (std::filesystem::temp_directory_path() / ("compare_suites." + std::to_string(getpid()))).string();
  CompareJournal memory;
  auto run = toy_suite(configs, 36);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const auto whole = run_suite(**run, configs, memory, [](double) { return true; });
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  int64_t rounds = 0;
  for (bool complete = false; !complete; ++rounds) {
    ASSERT_LT(rounds, 20);
    auto journal = CompareJournal::open(path, "toy");
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    auto again = toy_suite(configs, 36);
    double stop_at = -1;
    const auto part = run_suite(**again, configs, *journal, [&](double fraction) {
      if (stop_at < 0) stop_at = fraction;
      return fraction <= stop_at;  // one turn
    });
    ASSERT_TRUE(part.ok()) << part.error().message;
    complete = part->complete;
    const auto figures = suite_figures(*part);
    if (figures[1][0].items > 0) {
      EXPECT_EQ(figures[0][0].items, figures[1][0].items);  // only what both have
    }
    if (complete) {
      for (size_t config = 0; config < 2; ++config)
        for (size_t item = 0; item < 36; ++item) EXPECT_EQ(*part->values[config][item], *whole->values[config][item]);
    }
  }
  EXPECT_GT(rounds, 3);
  std::filesystem::remove(path);
}

TEST(Suites, GroupsHaveFigures) {
  const auto configs = toy_configs({});
  auto run = toy_suite(configs, 5);
  ASSERT_TRUE(run.ok()) << run.error().message;
  CompareJournal journal;
  const auto values = run_suite(**run, configs, journal, [](double) { return true; });
  ASSERT_TRUE(values.ok());
  const auto figures = suite_figures(*values);
  ASSERT_EQ(figures[0].size(), 3u);
  EXPECT_EQ(figures[0][1].metric, "length@even");
  EXPECT_EQ(figures[0][1].items, 3);
  EXPECT_EQ(figures[0][2].metric, "length@odd");
  EXPECT_TRUE(figures[0][2].of_group);
}

TEST(Suites, LengthsAreNotAveraged) {
  SuiteValues values;
  values.plan = {.name = "s", .metrics = {{"ms"}}, .items = {"128", "256", "128", "256"}, .overall = false};
  values.values.resize(1);
  for (const double value : {1.0, 10.0, 3.0, 30.0}) values.values[0].emplace_back(std::vector<double>{value});
  values.left_out.resize(1);
  const auto figures = suite_figures(values);
  ASSERT_EQ(figures[0].size(), 2u);
  EXPECT_EQ(figures[0][0].metric, "ms@128");
  EXPECT_EQ(figures[0][0].interval.value, 2);
  EXPECT_TRUE(figures[0][0].of_group);
  EXPECT_EQ(figures[0][1].interval.value, 20);
  EXPECT_FALSE(figures[0][1].of_group);
}

// Every lossy family with a suite that cannot see it: the figures are marked instead of looking free.
TEST(Suites, MarkWhatTheyCannotSee) {
  const auto configs =
      toy_configs({"drafter=ngram + acceptance=typical", "evictor=h2o:budget=24,slack=4",
                   "evictor=h2o:budget=24,slack=4,prompt=evicted",
                   "name=drawn + drafter=ngram + acceptance=typical + sampler=temperature:temperature=2",
                   "context=independent", "kv_format=q4_0 + drafter=ngram + acceptance=sampling"});
  const auto unseen = [&](const SuiteSight& sight) {
    std::string out;  // a letter for each configuration: its first unseen family, or -
    for (const CompareConfig& config : configs) {
      const std::string reason = unseen_of(sight, config);
      out += reason.empty() ? '-' : reason.front();
    }
    return out;
  };
  EXPECT_EQ(unseen({}), "-a---c-");  // greedy answers; prompts without documents
  EXPECT_EQ(unseen({.documents = true}), "-a-----");
  EXPECT_EQ(unseen({.generates = false}), "-a--ac-");
  EXPECT_NE(unseen_of({.generates = false}, configs[4]).find("; sampler=temperature"), std::string::npos);
  EXPECT_EQ(unseen({.generates = false, .drops_tokens = false, .documents = true}), "-ae-a--");
  EXPECT_EQ(unseen({.quality = false, .generates = false, .drops_tokens = false}), "-------");
}

TEST(Suites, UnseenReachesNotesAndFigures) {
  const auto configs = toy_configs({"drafter=ngram + acceptance=typical", "kv_format=bf16"});
  SuiteInput input;
  input.text = toy_text();
  input.items = 1;
  auto run = begin_suite("perplexity:32", configs, input);
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ((*run)->notes().size(), 1u);
  EXPECT_TRUE((*run)->notes()[0].starts_with("perplexity: drafter=ngram + acceptance=typical: unseen: acceptance=typ"))
      << (*run)->notes()[0];
  CompareJournal journal;
  const auto values = run_suite(**run, configs, journal, [](double) { return true; });
  ASSERT_TRUE(values.ok()) << values.error().message;
  const auto figures = suite_figures(*values);
  EXPECT_TRUE(figures[0][0].unseen.empty());
  for (const SuiteFigure& figure : figures[1])
    EXPECT_TRUE(figure.unseen.starts_with("acceptance=typical: ")) << figure.metric;
  EXPECT_TRUE(figures[2][0].unseen.empty());
}

TEST(Suites, EveryOneRuns) {
  const auto configs = toy_configs({"kv_format=bf16", "evictor=h2o:budget=24,slack=4"});
  const auto folder = std::filesystem::temp_directory_path() / ("compare_every." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  };
  const std::string choice = write("choice", "A cat\n0\nsits.\nflies.\nsings.\nswims.\n");
  const std::string exact =
      write("b.json", R"({"examples": [{"input": "a", "target": "b"}, {"input": "c", "target": "d"}]})");
  const std::string spec = write("spec.jsonl", "{\"category\": \"qa\", \"turns\": [\"Who?\"]}\n");
  SuiteInput input;
  input.text = toy_text();
  input.items = 2;
  input.rounds = 1;
  input.prompt = 12;
  input.generate = 4;
  for (const std::string& suite : {std::string("perplexity:16"), std::string("memory"), "choice:" + choice,
                                   "spec:" + spec, std::string("serve")}) {
    CompareJournal journal;
    const SuiteValues values = run_whole(suite, configs, input, journal);
    EXPECT_TRUE(values.complete);
    const auto figures = suite_figures(values);
    ASSERT_EQ(figures.size(), 3u) << suite;
    for (const auto& figure : figures[2]) {
      const bool of_drafts = figure.metric.starts_with("accepted_");  // and none of these drafts
      EXPECT_EQ(figure.items > 0, !of_drafts) << suite << " " << figure.metric;
    }
  }
  EXPECT_NE(suite_error("exact:" + exact, configs, input).find("none of 1 questions fits the context"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Suites, LongOnesRun) {
  const auto configs = toy_configs({"evictor=streamingllm:sinks=2,window=30"}, 512);
  SuiteInput input;
  input.items = 1;
  input.rounds = 1;
  CompareJournal journal;
  const auto needle = suite_figures(run_whole("needle", configs, input, journal));
  ASSERT_EQ(needle.size(), 2u);
  ASSERT_EQ(needle[0].size(), 1u + 3 * 5);  // lengths of 128, 256 and 512 tokens, five depths each
  EXPECT_EQ(needle[0][0].items, 15);
  EXPECT_EQ(needle[0][1].metric, "accuracy@128/0%");
  EXPECT_EQ(needle[0][15].metric, "accuracy@512/100%");
  const auto lab = suite_figures(run_whole("lab:copy", configs, input, journal));
  EXPECT_EQ(lab[1][0].items, 1);
  const auto scaling = suite_figures(run_whole("scaling", configs, input, journal));
  EXPECT_EQ(scaling[0].back().metric, "kv_bytes@496");
  EXPECT_LT(scaling[1].back().interval.value, scaling[0].back().interval.value);
}

TEST(Suites, ErrorsSayWhatToDo) {
  const auto configs = toy_configs({});
  EXPECT_EQ(suite_error("speed", configs),
            "suite 'speed': there are perplexity, documents, lab, needle, choice, exact, spec, serve, scaling, memory");
  EXPECT_EQ(suite_error("lab", configs), "suite lab: write lab:TASK");
  EXPECT_EQ(suite_error("memory:x", configs), "suite memory: takes nothing behind a colon, got 'x'");
  EXPECT_TRUE(suite_error("lab:flying", configs).starts_with("suite lab:flying: no such task; there are "));
  EXPECT_EQ(suite_error("perplexity", configs), "suite perplexity: needs a text; name it by --text FILE");
  SuiteInput input;
  input.text = "short";
  EXPECT_TRUE(suite_error("perplexity", configs, input)
                  .ends_with("fewer than a window of 64; use a longer text or a smaller window, perplexity:N"));
  EXPECT_EQ(suite_error("perplexity:99", configs, input),
            "suite perplexity:99: a window of 99 tokens does not fit the context of 64");
  EXPECT_EQ(suite_error("perplexity:1x", configs, input),
            "suite perplexity:1x: '1x' is no window; must be 4 to 16777216 tokens");
  EXPECT_EQ(suite_error("needle:4096", configs), "suite needle:4096: needs a context of 128 tokens, this one has 64");
  EXPECT_EQ(suite_error("serve", configs),
            "suite serve: a request of 256 tokens and an answer of 64 do not fit the context of 64");
}

}  // namespace
}  // namespace millrace
