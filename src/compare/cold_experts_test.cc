// Comparisons of models whose experts have two precisions: the notes say that their weights are lossy.
#include <gtest/gtest.h>

#include "compare/comparison.h"
#include "copied_models.h"
#include "run/language_model.h"

namespace millrace {
namespace {

class ColdExpertComparisons : public CopiedModels {
 protected:
  CompareConfig config_of(const std::string& text, const std::string& path) {
    const auto spec = parse_compare_spec(text);
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    EngineOptions engine;
    engine.threads = 1;
    auto config = make_compare_config(*spec, engine, [&](const CompareSpec&, const LoadOptions& given) {
      LoadOptions options = given;
      options.threads = 1;
      options.context = 64;
      return LanguageModel::load(path, options);
    });
    EXPECT_TRUE(config.ok()) << config.error().message;
    return std::move(*config);
  }
};

TEST_F(ColdExpertComparisons, NotesNameThemAsLossy) {
  const std::string path = copy_of("tests/golden/mixtral/model.gguf");
  std::vector<CompareConfig> configs;
  for (const char* text : {"weights=resident", "weights=experts:cold=q4_0,hot=1", "weights=experts:cold=q4_0,hot=0"})
    configs.push_back(config_of(text, path));
  ComparisonPlan plan;
  plan.suites = {"perplexity:16"};
  plan.input.items = 1;
  plan.input.rounds = 0;
  for (int i = 0; i < 40; ++i) plan.input.text += "The number " + std::to_string(i * 37) + " comes after another one. ";
  CompareJournal journal;
  const auto compared = run_comparison(plan, configs, journal, [](const std::string&, double) { return true; });
  ASSERT_TRUE(compared.ok()) << compared.error().message;
  ASSERT_EQ(compared->result.notes.size(), 1u);
  EXPECT_TRUE(compared->result.notes[0].starts_with(
      "weights=experts:cold=q4_0,hot=0: weights: 8 of 8 experts are cold, in q4_0 (lossy); all experts have "))
      << compared->result.notes[0];
}

}  // namespace
}  // namespace millrace
