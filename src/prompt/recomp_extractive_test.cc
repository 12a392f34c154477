// RECOMP's extractive compressor with vectors that are given by hand.
#include "prompt/compression_task.h"
#include "prompt/prompt_words_test.h"
#include "prompt/text_similarity.h"

namespace millrace {
namespace {

// Sentences by their first words; "Who" points along the first axis.
RepeatingModel with_vectors() {
  RepeatingModel model;
  const std::pair<const char*, std::vector<float>> vectors[] = {
      {"Ann", {0.6F, 0.8F}}, {" Ben", {0, 1}}, {"Cat", {0.8F, 0.6F}}, {" Dan", {1, 0}}, {"Who", {1, 0}}};
  for (const auto& [text, vector] : vectors) model.vectors[WordPrompt::id_of(text)] = vector;
  return model;
}

const char* const kFour = "[<s>]Ann sat. Ben ran.\nCat sat here. Dan ran.\nWho ?";

TEST(RecompExtractive, KeepsTheSentencesNearestToTheQuestion) {
  RepeatingModel model = with_vectors();
  const WordPrompt prompt(kFour);
  const std::string member = "recomp_extractive:center=0,";
  // Sentences of 2, 3, 3 and 3 tokens; from near to far Dan, Cat, Ann, Ben.
  EXPECT_EQ(compressed_text(member + "rate=0.3", prompt, model), "<s> Dan ran.\nWho ?");
  EXPECT_EQ(compressed_text(member + "rate=0.55", prompt, model), "<s>Cat sat here. Dan ran.\nWho ?");
  EXPECT_EQ(compressed_text(member + "rate=0.73", prompt, model), "<s>Ann sat.Cat sat here. Dan ran.\nWho ?");
  // What does not fit is passed over for what does.
  EXPECT_EQ(compressed_text(member + "rate=0.46", prompt, model), "<s>Ann sat. Dan ran.\nWho ?");
  // If no sentence fits, the nearest one is cut.
  EXPECT_EQ(compressed_text(member + "rate=0.1", prompt, model), "<s> DanWho ?");
  EXPECT_EQ(compressed_text(member + "rate=1", prompt, model), compressed_text("truncate:rate=1", prompt, model));
  EXPECT_EQ(compressed_text(member + "rate=0.55,unit=part", prompt, model), "<s>Cat sat here. Dan ran.\nWho ?");
}

// Vectors that share a direction are compared without it.
TEST(RecompExtractive, TheMeanIsSubtracted) {
  RepeatingModel model;
  const std::pair<const char*, std::vector<float>> vectors[] = {
      {"Ann", {0.9F, 0.3F, 0.3F}}, {"Ben", {0.9F, -0.3F, -0.3F}}, {"Who", {0.9F, -0.2F, -0.4F}}};
  for (const auto& [text, vector] : vectors) model.vectors[WordPrompt::id_of(text)] = vector;
  const WordPrompt prompt("[<s>]Ann sat\nBen ran\nWho ?");
  const auto ranges = std::vector<TokenRange>{{1, 3}, {4, 3}, {7, 2}};
  const auto centred = embed_ranges(prompt.view(), ranges, "", true, model);
  ASSERT_TRUE(centred.ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR((*centred)[i][0], 0, 1e-6);
    EXPECT_NEAR(dot((*centred)[i], (*centred)[i]), 1, 1e-6);
  }
  EXPECT_LT(dot((*centred)[0], (*centred)[2]), -0.9);
  EXPECT_GT(dot((*centred)[1], (*centred)[2]), 0.8);
  EXPECT_EQ(compressed_text("recomp_extractive:rate=0.5", prompt, model), "<s>Ben ran\nWho ?");
}

}  // namespace
}  // namespace millrace
