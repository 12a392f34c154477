// CoT-Influx: shots and words by hand, the budget over drawn prompts, and the networks of the golden file.
#include "prompt/keep_policy.h"
#include "prompt/policy_files_test.h"
#include "prompt/prompt_words_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

// "apple" is in the question: a shot that has it lowers the question's information.
constexpr const char* kShots =
    "[<s>]A plum is 3 + 4 = 7\nAn apple is quite well red\nA pear is green and so on\n\nHow red is an| apple ?";

TEST(CotInflux, ChoosesShotsThatHelpTheQuestion) {
  const WordPrompt prompt(kShots);
  RepeatingModel model;
  for (const std::string word : {" apple", " red"}) model.costs[word] = 3;
  const std::string kept = compressed_text("cot_influx:rate=0.28,coarse=1,parts=line", prompt, model);
  EXPECT_EQ(kept.find("plum"), std::string::npos) << kept;
  EXPECT_EQ(kept.find("pear"), std::string::npos) << kept;
  EXPECT_NE(kept.find("An apple"), std::string::npos) << kept;
  EXPECT_TRUE(kept.ends_with("How red is an apple ?")) << kept;
}

TEST(CotInflux, CalculationsRemainBeforeOtherWords) {
  const WordPrompt prompt("[<s>]Tom has 3 red balls and buys 4 more so 3 + 4 = 7 well-made balls\nHow many ?");
  RepeatingModel model;
  for (const std::string word : {" 3", " 4", " 7", " +", " ="}) model.costs[word] = 0.1;  // the model expects them
  const std::string kept = compressed_text("cot_influx:rate=0.5", prompt, model);
  for (const std::string part : {" 3", " 4", " + 4 = 7"}) EXPECT_NE(kept.find(part), std::string::npos) << kept;
  // Without signs and digits, the least information goes first.
  model.costs[" red"] = 0.01;
  model.costs[" well-made"] = 0.02;
  const std::string most = compressed_text("cot_influx:rate=0.89", prompt, model);
  EXPECT_EQ(most.find("red"), std::string::npos) << most;
  EXPECT_EQ(most.find("well-made"), std::string::npos) << most;
  EXPECT_NE(most.find("3 + 4 = 7"), std::string::npos) << most;
}

TEST(CotInflux, KeepsToTheBudget) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const WordPrompt prompt = drawn_prompt(seed, 1 + static_cast<int64_t>(seed % 9));
    for (const double rate : {0.0, 0.2, 0.5, 0.8, 1.0}) {
      RepeatingModel model;
      const auto made =
          make_prompt_compressor("cot_influx:rate=" + std::to_string(rate) + ",coarse=" + std::to_string(1 + seed % 3));
      ASSERT_TRUE(made.ok());
      const auto rest = (*made)->compress(prompt.view(), model, kAnyBudget);
      ASSERT_TRUE(rest.ok());
      EXPECT_TRUE(std::ranges::is_sorted(rest->kept));
      const int64_t others = 5;  // <s> and the four tokens of the question
      const auto free = std::ssize(prompt.tokens) - others;
      EXPECT_LE(std::ssize(rest->kept), others + static_cast<int64_t>(rate * static_cast<double>(free) + 0.5)) << seed;
      EXPECT_TRUE(prompt.text_of(rest->kept).starts_with("<s>"));
      EXPECT_EQ(prompt.text_of(rest->kept),
                compressed_text("cot_influx:rate=" + std::to_string(rate) + ",coarse=" + std::to_string(1 + seed % 3),
                                prompt, model));
    }
  }
}

// A shot is embedded as its first word, and a token's state is that of its word.
TEST(CotInflux, NetworksChooseShotsAndTokens) {
  const GoldenPolicy golden(MILLRACE_SOURCE_DIR);
  RepeatingModel model;
  const auto opened = PolicyFile::open(golden.path, {"shot", "token"});
  ASSERT_TRUE(opened.ok());
  model.files[{"cot_influx", golden.path}] = *opened;
  std::string text = "[<s>]";
  const size_t count = golden.vectors.size();
  for (size_t i = 0; i < count; ++i) text += "u" + std::to_string(i) + " u" + std::to_string((i + 5) % count) + "\n";
  const WordPrompt prompt(text + "\nWho ?");
  for (const std::string word : {"<s>", "\n", "Who", " ?"}) model.vectors[WordPrompt::id_of(word)] = golden.vectors[0];
  for (size_t i = 0; i < count; ++i)
    for (const std::string space : {"", " "})
      model.vectors[WordPrompt::id_of(space + "u" + std::to_string(i))] = golden.vectors[i];
  const std::vector<double> shots = golden.expected["shot"], tokens = golden.expected["token"];
  const size_t best = static_cast<size_t>(std::ranges::max_element(shots) - shots.begin());
  // One shot of three tokens, whole; with coarse=1 nothing else is chosen.
  const std::string member = "cot_influx:parts=line,policy=" + golden.path;
  const std::string whole = compressed_text(member + ",coarse=1,tokens=6", prompt, model);
  EXPECT_EQ(whole, "<s>u" + std::to_string(best) + " u" + std::to_string((best + 5) % count) + "\nWho ?");
  // One token may remain of one shot: the one with the highest probability; a line break has that of the first word.
  const std::string one = compressed_text(member + ",coarse=1,tokens=4", prompt, model);
  const double own = tokens[best], next = tokens[(best + 5) % count], line = tokens[0];
  const std::string kept = own >= next && own >= line ? "u" + std::to_string(best)
                           : next >= line             ? " u" + std::to_string((best + 5) % count)
                                                      : "\n";
  EXPECT_EQ(one, "<s>" + kept + "Who ?");
}

TEST(CotInflux, Messages) {
  const auto heuristic = make_prompt_compressor("cot_influx"), trained = make_prompt_compressor("cot_influx:policy=p");
  ASSERT_TRUE(heuristic.ok() && trained.ok());
  EXPECT_EQ((*heuristic)->needs(), kNeedsSelfInformation);
  EXPECT_EQ((*heuristic)->file(), "");
  EXPECT_EQ((*trained)->needs(), kNeedsEmbeddings);
  RepeatingModel model;
  EXPECT_EQ(compressed_text("cot_influx:rate=0.3,policy=p", WordPrompt(kShots), model),
            "error: prompt cot_influx: p is not one of the files that were opened; requests cannot name files");
}

}  // namespace
}  // namespace millrace
