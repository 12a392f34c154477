// Two models on one text: a model beside itself, beside another of its kind, and texts that cannot be.
#include "evaluate/model_divergence.h"

#include <gtest/gtest.h>

#include "evaluate/scorer.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::shared_ptr<const LanguageModel> divergence_model(const std::string& name) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf",
                                   {.threads = 1, .context = 32});
  return model.ok() ? *model : nullptr;
}

DivergenceText some_divergence_text() {
  DivergenceText out{.name = "text", .context = 16, .threads = 2};
  for (int i = 0; i < 40; ++i) out.text += "a text of words that repeat " + std::to_string(i);
  return out;
}

TEST(ModelDivergence, OfAModelFromItselfIsNothing) {
  const auto model = divergence_model("llama");
  auto found = compare_models(model, model, some_divergence_text());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_GT(found->tokens, 30);
  EXPECT_NEAR(found->perplexity, found->reference_perplexity, 1e-6 * found->perplexity);
  EXPECT_NEAR(found->divergence.kl_max, 0, 1e-9);
  EXPECT_NEAR(found->divergence.same_top, 1, 1e-9);
}

// Perplexities are those that the scorer gives each model alone.
TEST(ModelDivergence, HasBothPerplexities) {
  const auto reference = divergence_model("llama"), model = divergence_model("llama_bias");
  const DivergenceText text = some_divergence_text();
  auto found = compare_models(reference, model, text);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_GT(found->divergence.kl_mean, 0);
  auto back = compare_models(model, reference, text);
  ASSERT_TRUE(back.ok());
  EXPECT_NEAR(found->perplexity, back->reference_perplexity, 1e-3 * found->perplexity);
  EXPECT_NEAR(back->perplexity, found->reference_perplexity, 1e-3 * back->perplexity);
  DivergenceText fewer = text;
  fewer.windows = 1;
  auto first = compare_models(reference, model, fewer);
  ASSERT_TRUE(first.ok());
  EXPECT_LT(first->tokens, found->tokens);
}

TEST(ModelDivergence, SaysWhatIsWrong) {
  const auto model = divergence_model("llama");
  DivergenceText text{.name = "empty.txt"};
  auto found = compare_models(model, model, text);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message.find("empty.txt: has "), 0u);
}

}  // namespace
}  // namespace millrace
