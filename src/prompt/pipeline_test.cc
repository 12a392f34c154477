// The pipeline: what it fixes, what it reports, and where the tokens of a text end.
#include "prompt/pipeline.h"

#include <gtest/gtest.h>

#include "prompt/prompt_test.h"
#include "prompt/token_ends.h"

namespace millrace {
namespace {

const std::vector<std::string> kTexts = {"<unk>", "<s>", " the", " cat", " sat", "s", ".", " dog", " a"};
enum Id : TokenId { kStart = 1, kThe, kCat, kSat, kPlural, kStop, kDog, kA };

Result<CompressedPrompt> compressed(const std::vector<std::string>& passes, const std::vector<TokenId>& tokens,
                                    const std::vector<char>& fixed, int64_t budget, GivenScores& scores) {
  std::vector<PromptSource> sources;
  for (const char one : fixed) sources.push_back(one ? PromptSource::fixed : PromptSource::text);
  static const auto tokenizer = tokenizer_of(kTexts, {0, kStart});
  MILLRACE_TRY(const auto pipeline, PromptPipeline::create(passes));
  return pipeline.apply(tokenizer.get(), tokens, sources, budget, &scores);
}

TEST(Pipeline, DropsTheWordsWithTheLeastInformation) {
  GivenScores scores;
  scores.of = {{kStart, 0}, {kThe, 1}, {kCat, 3}, {kPlural, 1}, {kSat, 2}, {kStop, 0.5}, {kDog, 5}, {kA, 0.1F}};
  const std::vector<TokenId> prompt = {kStart, kThe, kCat, kPlural, kSat, kStop, kA, kDog, kSat, kStop};
  const auto out = compressed({"selective_context:ratio=0.5,keep_last=0"}, prompt, {}, 100, scores);
  ASSERT_TRUE(out.ok()) << out.error().message;
  // words: the 1, cats 4, sat. 2.5, a 0.1, dog 5, sat. 2.5; three go: a, the, the first sat.
  EXPECT_EQ(out->tokens, (std::vector<TokenId>{kStart, kCat, kPlural, kDog, kSat, kStop}));
  EXPECT_EQ(out->kept, (std::vector<int64_t>{0, 2, 3, 7, 8, 9}));
  ASSERT_EQ(out->effects.size(), 1u);
  EXPECT_EQ(out->effects[0].name, "selective_context");
  EXPECT_EQ(out->effects[0].options, "ratio=0.5,keep_last=0");
  EXPECT_EQ(out->effects[0].tokens_before, 10);
  EXPECT_EQ(out->effects[0].tokens_after, 6);
  EXPECT_DOUBLE_EQ(out->effects[0].ratio(), 0.6);
  EXPECT_EQ(scores.model, "");
}

TEST(Pipeline, SpecialAndFixedTokensRemain) {
  GivenScores scores;
  scores.of = {{kThe, 1}, {kDog, 5}};
  const auto out = compressed({"selective_context:ratio=0.99,keep_last=0,tokens=1"}, {kThe, kStart, kThe, kDog, kThe},
                              {0, 0, 0, 0, 1}, 1, scores);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->kept, (std::vector<int64_t>{1, 4}));
}

TEST(Pipeline, PassesFollowOneAnother) {
  GivenScores scores;
  for (TokenId id = 0; id < 9; ++id) scores.of[id] = static_cast<float>(id);
  const std::vector<TokenId> prompt = {kThe, kCat, kSat, kDog, kA, kThe, kCat, kSat};
  const std::string half = "selective_context:unit=token,keep_last=0,ratio=0.5";
  const auto out = compressed({half, half + ",model=other.gguf"}, prompt, {}, 100, scores);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->tokens, (std::vector<TokenId>{kDog, kA}));
  EXPECT_EQ(out->kept, (std::vector<int64_t>{3, 4}));
  ASSERT_EQ(out->effects.size(), 2u);
  EXPECT_EQ(out->effects[1].tokens_before, 4);
  EXPECT_EQ(scores.model, "other.gguf");
  const auto pipeline = PromptPipeline::create(std::vector<std::string>{half, half + ",model=other.gguf", half});
  ASSERT_TRUE(pipeline.ok());
  EXPECT_EQ(pipeline->models(), (std::vector<std::string>{"", "other.gguf"}));
}

TEST(Pipeline, EmptyShortAndFixedPromptsAreNotScored) {
  GivenScores scores;
  const std::string pass = "selective_context:ratio=0.9,keep_last=0";
  EXPECT_TRUE(compressed({pass}, {}, {}, 100, scores)->tokens.empty());
  EXPECT_EQ(compressed({pass}, {kStart}, {}, 100, scores)->tokens, std::vector<TokenId>{kStart});
  EXPECT_EQ(compressed({pass}, {kCat, kDog}, {1, 1}, 1, scores)->tokens.size(), 2u);
  EXPECT_EQ(scores.calls, 0);
  EXPECT_EQ(compressed({pass}, {kCat}, {}, 100, scores)->tokens, std::vector<TokenId>{kCat});          // never empty
  EXPECT_EQ(compressed({"selective_context"}, {kCat, kDog, kSat}, {}, 1, scores)->tokens.size(), 3u);  // the last 32
  EXPECT_EQ(compressed({}, {kCat, kDog}, {}, 1, scores)->tokens.size(), 2u);
}

TEST(Pipeline, Messages) {
  GivenScores scores;
  const auto unknown = compressed({"selective_context", "summary"}, {kCat}, {}, 1, scores);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message.substr(0, 44), "prompt: unknown 'summary'; available: random");
  const auto pipeline = PromptPipeline::create(std::vector<std::string>{"selective_context"});
  const auto none = pipeline->apply(nullptr, std::vector<TokenId>{kCat}, {}, 1, &scores);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(none.error().message, "prompt: the model has no tokenizer, so its prompts cannot be compressed");
}

TEST(Pipeline, BudgetsLeaveRoomForTheAnswer) {
  EXPECT_EQ(prompt_budget(1000, 100), 900);
  EXPECT_EQ(prompt_budget(1000, -1), 875);
  EXPECT_EQ(prompt_budget(1000, 0), 999);
  EXPECT_EQ(prompt_budget(1000, 5000), 1);
}

TEST(TokenEnds, FollowTheText) {
  const auto tokenizer = tokenizer_of(kTexts, {0, kStart});
  ASSERT_TRUE(tokenizer);
  using Ends = std::vector<size_t>;
  EXPECT_EQ(token_ends(*tokenizer, std::vector<TokenId>{kStart, kThe, kCat, kPlural, kStop}, "the cats."),
            (Ends{0, 3, 7, 8, 9}));
  EXPECT_EQ(token_ends(*tokenizer, std::vector<TokenId>{kThe, kStart, kCat}, "the<s>cat"), (Ends{3, 6, 9}));
  EXPECT_EQ(token_ends(*tokenizer, std::vector<TokenId>{kThe, kStart, kCat}, "the \n<s> \ncat"), (Ends{3, 8, 13}));
  EXPECT_FALSE(token_ends(*tokenizer, std::vector<TokenId>{kThe, kDog}, "the cat"));
  EXPECT_FALSE(token_ends(*tokenizer, std::vector<TokenId>{kThe}, "the cat"));
  EXPECT_EQ(token_ends(*tokenizer, {}, ""), Ends{});
}

}  // namespace
}  // namespace millrace
