// RECOMP's abstractive compressor: what the summarizer reads, and where its summary is put.
#include "prompt/prompt_test.h"
#include "prompt/prompt_words_test.h"

namespace millrace {
namespace {

const std::vector<std::string> kWords = {"<unk>", "<s>", " A", " s", ".", "\n", " W", "?", " B", " r"};
enum Word : TokenId { kBegin = 1, kAnn, kSits, kDot, kLine, kWho, kMark, kBen, kRan };

struct Summarized {
  Result<CompressedPrompt> prompt;
  RepeatingModel model;
};

Summarized summarized(const std::string& options, const std::string& summary) {
  static const auto tokenizer = tokenizer_of(kWords, {0, kBegin});
  Summarized out{Error::internal("not run"), {}};
  out.model.summary = summary;
  const auto pipeline = PromptPipeline::create(std::vector<std::string>{"recomp_abstractive:" + options});
  EXPECT_TRUE(pipeline.ok()) << pipeline.error().message;
  const std::vector<TokenId> tokens = {kBegin, kAnn, kSits, kDot, kLine, kBen, kRan, kDot, kLine, kWho, kMark};
  out.prompt = pipeline->apply(tokenizer.get(), tokens, {}, 100, &out.model);
  return out;
}

TEST(RecompAbstractive, TheSummaryTakesThePlaceOfTheDocuments) {
  const auto out = summarized("rate=0.5,model=small.gguf,instruction=Say it.", "B r\n");
  ASSERT_TRUE(out.prompt.ok()) << out.prompt.error().message;
  ASSERT_EQ(out.model.messages.size(), 1u);
  EXPECT_EQ(out.model.messages[0], "small.gguf:  A s.\n B r.\nSay it.\n W?");
  EXPECT_EQ(out.model.most_written, 4);
  EXPECT_EQ(out.prompt->tokens, (std::vector<TokenId>{kBegin, kBen, kRan, kLine, kWho, kMark}));
  EXPECT_EQ(out.prompt->kept, (std::vector<int64_t>{0, kWrittenToken, kWrittenToken, kWrittenToken, 9, 10}));
}

TEST(RecompAbstractive, SummariesAreCutToTheBudget) {
  const auto longer = summarized("rate=0.25,model=small.gguf", "B r.");
  ASSERT_TRUE(longer.prompt.ok());
  EXPECT_EQ(longer.prompt->tokens, (std::vector<TokenId>{kBegin, kBen, kRan, kWho, kMark}));
  const auto none = summarized("rate=0,model=small.gguf", "B");
  EXPECT_TRUE(none.model.messages.empty());
  EXPECT_EQ(none.prompt->tokens, (std::vector<TokenId>{kBegin, kWho, kMark}));
  const auto silent = summarized("rate=0.5,model=small.gguf", "");
  EXPECT_EQ(silent.prompt->tokens, (std::vector<TokenId>{kBegin, kWho, kMark}));
  const auto whole = summarized("rate=1,model=small.gguf", "B");
  EXPECT_TRUE(whole.model.messages.empty());  // nothing has to go
  EXPECT_EQ(whole.prompt->tokens.size(), 11u);
}

TEST(RecompAbstractive, NeedsASummarizer) {
  const auto made = make_prompt_compressor("recomp_abstractive");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "prompt recomp_abstractive: model: name the file of the model that writes the summary");
}

}  // namespace
}  // namespace millrace
