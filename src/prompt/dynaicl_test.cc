// Dynamic in-context learning: the controller by hand.
#include "prompt/prompt_words_test.h"

namespace millrace {
namespace {

// Examples of one token and a line break, in order of their costs, before a question. A line break costs one nat less
// after the first one, so the examples' means differ by halves of the words' costs.
WordPrompt examples_of(RepeatingModel& model, const std::vector<double>& costs) {
  std::string text = "[<s>]";
  for (size_t i = 0; i < costs.size(); ++i) {
    const std::string word = "x" + std::to_string(i);
    model.costs[word] = costs[i];
    text += word + "\n";
  }
  model.costs["\n"] = 1;
  return WordPrompt(text + "Who ?");
}

int64_t kept_examples(const std::string& options, const std::vector<double>& costs, int64_t budget = kAnyBudget) {
  RepeatingModel model;
  const WordPrompt prompt = examples_of(model, costs);
  const std::string text = compressed_text("dynaicl:" + options, prompt, model, budget);
  EXPECT_TRUE(text.starts_with("<s>") && text.ends_with("Who ?")) << text;
  for (int64_t i = 0; i < std::ranges::count(text, '\n'); ++i)
    EXPECT_NE(text.find("x" + std::to_string(i) + "\n"), std::string::npos) << text;  // the first ones remain
  return std::ranges::count(text, '\n');
}

TEST(DynaIcl, StopsWhereFurtherExamplesAreNoEasier) {
  // Over windows of two, the costs behind 2, 3 and 4 examples are 7, 3 and 2, and at the end 2.
  const std::vector<double> costs = {9, 9, 9, 5, 1, 3, 2, 2};
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=0", costs), 4);
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=0.6", costs), 3);
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=9", costs), 2);
  EXPECT_EQ(kept_examples("least=0,window=2,tolerance=99", costs), 0);
  EXPECT_EQ(kept_examples("least=6,window=2,tolerance=0", costs), 8);  // nothing behind it to compare with the end
  EXPECT_EQ(kept_examples("least=0,window=2,tolerance=0", {8, 7, 6, 5, 4, 3}), 6);  // easier up to the end
}

TEST(DynaIcl, KeepsToTheBudget) {
  const std::vector<double> costs = {9, 9, 9, 5, 1, 3, 2, 2};
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=0,rate=0.25", costs), 2);  // four of 16 tokens
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=0,tokens=9", costs), 3);
  EXPECT_EQ(kept_examples("least=2,window=2,tolerance=0", costs, 5), 1);
}

}  // namespace
}  // namespace millrace
