// The baselines random and truncate against plain definitions, and what all compressors with a budget share.
#include <set>

#include "prompt/compression_task.h"
#include "prompt/prompt_words_test.h"

namespace millrace {
namespace {

std::string shortened(const std::string& member, std::string_view text, int64_t budget = kAnyBudget) {
  RepeatingModel none;
  return compressed_text(member, WordPrompt(text), none, budget);
}

// Nine tokens before the question.
const char* const kTwoLines = "[<s>]a b c d\ne f g\nWhat now";

TEST(Truncate, CutsOneSide) {
  EXPECT_EQ(shortened("truncate:rate=0.34", kTwoLines), "<s> f g\nWhat now");
  EXPECT_EQ(shortened("truncate:rate=0.34,cut=end", kTwoLines), "<s>a b cWhat now");
  EXPECT_EQ(shortened("truncate:rate=0.34,cut=middle", kTwoLines), "<s>a g\nWhat now");
  EXPECT_EQ(shortened("truncate:rate=1,tokens=7", kTwoLines), "<s>e f g\nWhat now");
  EXPECT_EQ(shortened("truncate:rate=1", kTwoLines, 7), "<s>e f g\nWhat now");
  EXPECT_EQ(shortened("truncate:rate=0", kTwoLines), "<s>What now");
  EXPECT_EQ(shortened("truncate:rate=1", kTwoLines), "<s>a b c d\ne f g\nWhat now");
  EXPECT_EQ(shortened("truncate:rate=1,tokens=1", kTwoLines), "<s>What now");  // the question remains
}

TEST(Truncate, FixedTokensInBetweenRemain) {
  EXPECT_EQ(shortened("truncate:rate=0.5", "[<s>]a b[<sep>]c d\nWhat now"), "<s><sep>c d\nWhat now");
}

TEST(RandomUnits, DropsUnitsInADrawnOrderUntilTheBudgetIsMet) {
  std::set<std::string> results;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const WordPrompt prompt = drawn_prompt(seed, 4);
    const std::string member = "random:rate=0.4,unit=token,seed=" + std::to_string(seed % 3);
    RepeatingModel none;
    const auto made = make_prompt_compressor(member);
    ASSERT_TRUE(made.ok());
    const auto rest = (*made)->compress(prompt.view(), none, kAnyBudget);
    ASSERT_TRUE(rest.ok());
    EXPECT_TRUE(none.asked.empty());
    const auto task = CompressionTask::create(prompt.view(), {.rate = 0.4}, kAnyBudget);
    ASSERT_EQ(task.question.count, 4);
    EXPECT_EQ(std::ssize(rest->kept), std::ssize(prompt.tokens) - task.droppable + task.keep);
    EXPECT_TRUE(std::ranges::is_sorted(rest->kept));
    for (size_t i = 0; i < task.fixed.size(); ++i)
      EXPECT_TRUE(!task.fixed[i] || std::ranges::binary_search(rest->kept, static_cast<int64_t>(i)));
    EXPECT_EQ((*made)->compress(prompt.view(), none, kAnyBudget)->kept, rest->kept);
    // A tighter budget drops more in the same order.
    const auto tighter = (*made)->compress(prompt.view(), none, std::ssize(rest->kept) - 2);
    EXPECT_EQ(std::ssize(tighter->kept), std::ssize(rest->kept) - 2);
    EXPECT_TRUE(std::ranges::includes(rest->kept, tighter->kept));
  }
  for (int seed = 0; seed < 6; ++seed)
    results.insert(shortened("random:rate=0.4,seed=" + std::to_string(seed), kTwoLines));
  EXPECT_GT(results.size(), 3u);
}

TEST(RandomUnits, WordsAreWhole) {
  const std::string kept = shortened("random:rate=0.5", "[<s>]ab|cd ef|gh ij|kl mn|op\nWho");
  const std::vector<std::pair<std::string, std::string>> words = {
      {"ab", "cd"}, {"ef", "gh"}, {"ij", "kl"}, {"mn", "op"}};
  for (const auto& [begin, end] : words)
    EXPECT_EQ(kept.find(begin) == std::string::npos, kept.find(end) == std::string::npos) << kept;
}

TEST(CompressionTask, ThePartsAndTheQuestion) {
  const auto task_of = [](const WordPrompt& prompt, CompressionOptions options = {.rate = 0.5}) {
    return CompressionTask::create(prompt.view(), options, kAnyBudget);
  };
  const WordPrompt lines("[<s>]a b\nc d e\n\nWho ?");
  EXPECT_EQ(task_of(lines).parts, (std::vector<TokenRange>{{1, 3}, {4, 5}}));  // the empty line belongs to the second
  EXPECT_EQ(task_of(lines).question, (TokenRange{9, 2}));
  EXPECT_EQ(task_of(lines).droppable, 8);
  EXPECT_EQ(task_of(lines).keep, 4);
  EXPECT_EQ(task_of(lines, {.rate = 0.5, .keep_last = 4}).question, (TokenRange{7, 4}));
  const WordPrompt paragraphs("a\nb\n\nc\n\nd\ne\n\nWho ?");
  EXPECT_EQ(task_of(paragraphs).parts, (std::vector<TokenRange>{{0, 5}, {5, 3}, {8, 5}}));
  EXPECT_EQ(task_of(paragraphs, {.rate = 1, .parts = PartBreak::line}).parts.size(), 5u);
  const WordPrompt two("a\nb\n\nc\nd\n\nWho ?");  // the question's empty line counts
  EXPECT_EQ(task_of(two).parts, (std::vector<TokenRange>{{0, 5}, {5, 5}}));
  const WordPrompt sentences("He sat. She ran. Who won?");
  EXPECT_EQ(task_of(sentences).question, (TokenRange{4, 2}));
  EXPECT_EQ(task_of(sentences).parts, (std::vector<TokenRange>{{0, 4}}));
  EXPECT_EQ(task_of(WordPrompt("one sentence")).question.count, 0);
  EXPECT_EQ(task_of(WordPrompt("one sentence"), {.rate = 0}).keep, 1);  // a prompt is never empty
  EXPECT_EQ(task_of(WordPrompt("[fixed]")).droppable, 0);
}

// In a conversation the last message of the user is the question if it is one line, or its last line.
TEST(CompressionTask, TheQuestionOfAConversation) {
  WordPrompt prompt("[<u>]a b\nc[<u>]Who ?[<t>]d e");
  for (size_t i = 0; i < prompt.tokens.size(); ++i) {
    if (prompt.fixed[i]) continue;
    prompt.sources[i] = i < 5 ? PromptSource::turn : i < 8 ? PromptSource::text : PromptSource::tool;
  }
  const auto task = CompressionTask::create(prompt.view(), {.rate = 0.5}, kAnyBudget);
  EXPECT_EQ(task.question, (TokenRange{6, 2}));
  EXPECT_EQ(task.parts, (std::vector<TokenRange>{{1, 3}, {4, 1}, {9, 2}}));
}

std::string message_of(const std::string& member) {
  const auto made = make_prompt_compressor(member);
  return made.ok() ? "" : made.error().message;
}

TEST(Baselines, Messages) {
  EXPECT_EQ(message_of("truncate:cut=left"), "prompt truncate: cut: expected start, middle or end, got 'left'");
  EXPECT_EQ(message_of("random:rate=2"), "prompt random: rate: must be between 0 and 1, got 2");
  EXPECT_EQ(message_of("random:scope=x"), "prompt random: scope: expected all, documents, history or tools, got 'x'");
  EXPECT_EQ(message_of("llmlingua:parts=x"), "prompt llmlingua: parts: expected automatic, line or paragraph, got 'x'");
}

}  // namespace
}  // namespace millrace
