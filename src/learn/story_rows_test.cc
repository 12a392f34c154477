// Rows of stories: what they hold, how long they are, and that the engine reads the same text as the same tokens.
#include "learn/story_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "learn/lab_mixture.h"

namespace millrace {
namespace {

constexpr int64_t kContext = 200;

std::vector<std::string> numbered_stories() {
  std::vector<std::string> out;
  for (int i = 0; i < 40; ++i)
    out.push_back("Story " + std::to_string(100 + i) + " begins.\nIt has two lines and ends with " +
                  std::to_string(100 + i) + ".");
  return out;
}

class StoryRowsTest : public ::testing::Test {
 protected:
  static const TokenizerSpec& spec() {
    static const TokenizerSpec kSpec = *learn_lab_vocabulary(numbered_stories(), 1024);
    return kSpec;
  }
  static std::string text_of(const LabExample& row) { return BpeEncoder(spec()).decode(row.ids); }
  StoryRows rows_{spec(), numbered_stories(), 7, kContext};
};

TEST_F(StoryRowsTest, ALongRowIsOneDocumentThatFillsTheContext) {
  LabBatch batch;
  EXPECT_EQ(rows_.fill(0, 40'000, kContext, batch), 1u);
  EXPECT_EQ(batch.tokens(), kContext);
  EXPECT_EQ(batch.starts, std::vector<int64_t>{0});
  EXPECT_EQ(batch.ids[0], kBosId);
  EXPECT_EQ(std::ranges::count(batch.ids, TokenId{kBosId}), 1);
  EXPECT_EQ(std::ranges::count(batch.weights, 1.0f), kContext);
}

TEST_F(StoryRowsTest, AnEmptyLineIsBetweenWholeStories) {
  const std::string text = text_of(rows_.example(3, 40'000));
  const std::vector<std::string> all = numbered_stories();
  int64_t whole = 0;
  for (size_t at = 0, end = 0; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2, ++whole)
    EXPECT_NE(std::ranges::find(all, text.substr(at, end - at)), all.end()) << text.substr(at, end - at);
  EXPECT_GE(whole, 2);
}

TEST_F(StoryRowsTest, AShortRowHasSoManyCharacters) {
  for (int64_t longest : {30, 100, 150}) {
    const std::string text = text_of(rows_.example(1, longest)), longer = text_of(rows_.example(1, 2 * longest));
    EXPECT_LE(std::ssize(text), longest);
    EXPECT_GT(std::ssize(text), longest - 20);
    EXPECT_TRUE(longer.starts_with(text + " ")) << "cut within a word: " << text;
  }
}

TEST_F(StoryRowsTest, ARowIsAFunctionOfSeedAndIndex) {
  StoryRows again(spec(), numbered_stories(), 7, kContext), other(spec(), numbered_stories(), 8, kContext);
  const LabExample fifth = again.example(5, 500);
  EXPECT_EQ(rows_.example(4, 500).ids, again.example(4, 500).ids);
  EXPECT_EQ(rows_.example(5, 500).ids, fifth.ids);
  EXPECT_NE(rows_.example(4, 500).ids, fifth.ids);
  EXPECT_NE(other.example(5, 500).ids, fifth.ids);
}

TEST_F(StoryRowsTest, TokensAreThoseOfTheEngine) {
  auto engine_spec = spec();
  const auto tokenizer = Tokenizer::create(engine_spec);
  ASSERT_TRUE(tokenizer.ok());
  const LabExample row = rows_.example(2, 300);
  EXPECT_EQ((*tokenizer)->encode(text_of(row), {.parse_special = false}), row.ids);
}

}  // namespace
}  // namespace millrace
