// Programs in comparisons: their answers are scored as any others, with their tokens, cost and time.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/answer_suite.h"
#include "compare/suite.h"

namespace millrace {
namespace {

Result<CompareConfig> config_of(const std::string& text) {
  MILLRACE_TRY(const auto spec, parse_compare_spec(text));
  EngineOptions engine;
  engine.threads = 1;
  return make_compare_config(spec, engine, [](const CompareSpec& of, const LoadOptions&) {
    return LanguageModel::load(of.model.empty() ? "lab" : of.model, {.threads = 1});
  });
}

TEST(ProgramAnswers, AreScoredWithTheirTokensCostAndTime) {
  std::vector<CompareConfig> configs;
  for (const char* text :
       {"plain", "program=skeleton:form=headings", "model=lab-draft + program=model_cascade:models=lab,thresholds=2"}) {
    auto config = config_of(text);
    ASSERT_TRUE(config.ok()) << config.error().message;
    configs.push_back(std::move(*config));
  }
  SuiteInput input;
  input.items = 2;
  const auto run = begin_suite("lab:lists", configs, input);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const SuitePlan& plan = (*run)->plan();
  EXPECT_TRUE(plan.timed);
  EXPECT_EQ(plan.at_once, 1);
  ASSERT_EQ(plan.metrics.size(), 5u);
  EXPECT_EQ(plan.metrics[3].name, "cost");
  const size_t items[] = {0, 1};
  std::vector<std::vector<std::vector<double>>> values;
  for (size_t i = 0; i < configs.size(); ++i) {
    auto measured = (*run)->measure(i, items, [] { return true; });
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    values.push_back(std::move(*measured));
  }
  for (size_t item = 0; item < 2; ++item) {
    EXPECT_EQ(values[0][item][0], 1);
    EXPECT_EQ(values[1][item][0], 1);                   // the skeleton's list is the model's own
    EXPECT_EQ(values[2][item][0], 1);                   // at a threshold above 1, the larger model's answer
    EXPECT_GT(values[1][item][1], values[0][item][1]);  // a prompt for each branch
    EXPECT_GT(values[2][item][3], values[0][item][3]);  // both models
    for (size_t i = 0; i < 3; ++i) EXPECT_GT(values[i][item][4], 0);
  }
}

TEST(ProgramAnswers, RefuseWhatTheyDoNotDo) {
  EXPECT_EQ(config_of("program=best_of + prompt=truncate").error().message,
            "program=best_of: its prompts are not compressed; leave out prompt=truncate");
  EXPECT_EQ(config_of("program=best_of + context=kvlink").error().message,
            "program=best_of: its prompts have no documents of their own; leave out context=kvlink");
  EXPECT_FALSE(config_of("program=model_cascade:models=missing.gguf,thresholds=0.5").ok());
}

}  // namespace
}  // namespace millrace
