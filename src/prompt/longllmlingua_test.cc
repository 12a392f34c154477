// LongLLMLingua: its ranking, its shares and its contrastive scores by hand; the recovery of quotes by brute force.
#include "prompt/prompt_words_test.h"
#include "prompt/recovery.h"
#include "prompt/token_pruning.h"

namespace millrace {
namespace {

// A question is likelier after a document that has its words: each costs one nat less.
TEST(LongLlmLingua, RanksDocumentsByTheQuestion) {
  RepeatingModel model;
  const WordPrompt prompt("[<s>]a b c d\ne Ann f g\nh Ann lives i\nWhere Ann lives ?");
  // coarse=1 keeps whole documents: 10 of 15 tokens are two of three, and the best comes first.
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.6667,coarse=1,restrict=0", prompt, model),
            "<s>h Ann lives i\ne Ann f g\nWhere Ann lives ?");
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.6667,coarse=1,restrict=0,reorder=0", prompt, model),
            "<s>e Ann f g\nh Ann lives i\nWhere Ann lives ?");
  model.asked.clear();
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.3334,coarse=1,restrict=0", prompt, model),
            "<s>h Ann lives i\nWhere Ann lives ?");
  // Each document was asked for once, after the start token and before the question.
  ASSERT_EQ(model.asked.size(), 3u);
  std::vector<TokenId> second = {prompt.tokens[0]};
  second.insert(second.end(), prompt.tokens.begin() + 6, prompt.tokens.begin() + 11);
  second.insert(second.end(), prompt.tokens.begin() + 16, prompt.tokens.end());
  EXPECT_EQ(model.asked[1], second);
}

TEST(LongLlmLingua, KeepsTheTokensThatTheQuestionMakesLikelier) {
  RepeatingModel model;
  model.costs = {{"a", 9}, {" b", 8}, {" c", 1}, {" Ann", 2}, {" lives", 3}, {"\n", 0.5}};
  const WordPrompt prompt("[<s>]a Ann b lives c\nd e f g h\nWhere Ann lives ?");
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.2,restrict=0", prompt, model), "<s> Ann livesWhere Ann lives ?");
  // The last two passes read the segment without the question and with it, a line break between them.
  const auto& asked = model.asked.back();
  std::vector<TokenId> expected = {prompt.tokens[0]};
  expected.insert(expected.end(), prompt.tokens.begin() + 13, prompt.tokens.end());
  expected.push_back(prompt.tokens[6]);
  expected.insert(expected.end(), prompt.tokens.begin() + 1, prompt.tokens.begin() + 7);
  EXPECT_EQ(asked, expected);
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.2,restrict=0,contrast=0", prompt, model), "<s>a bWhere Ann lives ?");
}

TEST(LongLlmLingua, BetterDocumentsKeepMore) {
  RepeatingModel model;
  const WordPrompt prompt("[<s>]a b c d e f g h i\nj Ann k l m n o p q\nWhere Ann lives ?");
  // 10 of 20 tokens remain: the better document keeps a share of 0.5 + 0.3, and the other one the rest.
  const auto made = make_prompt_compressor("longllmlingua:rate=0.5,restrict=0,dynamic=0.3");
  ASSERT_TRUE(made.ok());
  const auto rest = (*made)->compress(prompt.view(), model, kAnyBudget);
  ASSERT_TRUE(rest.ok()) << rest.error().message;
  const auto of_second = [](int64_t index) { return index >= 11 && index < 21; };
  EXPECT_EQ(std::ranges::count_if(rest->kept, of_second), 8);
  EXPECT_EQ(std::ssize(rest->kept), 1 + 10 + 4);
  EXPECT_TRUE(of_second(rest->kept[1]));  // it comes first
}

TEST(LongLlmLingua, WithoutAQuestionItPrunesByInformation) {
  RepeatingModel model;
  model.costs = {{"one", 1}, {" two", 5}, {" three", 2}, {" four", 4}};
  EXPECT_EQ(compressed_text("longllmlingua:rate=0.5", WordPrompt("[<s>]one two three four"), model), "<s> two four");
}

TEST(TokenPruning, FitsToATotal) {
  const std::vector<int64_t> sizes = {4, 6, 5};
  const auto fitted = [&](std::vector<int64_t> wanted, int64_t total) {
    fit_to_total(wanted, sizes, total);
    return wanted;
  };
  EXPECT_EQ(fitted({2, 2, 2}, 6), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(fitted({2, 2, 2}, 11), (std::vector<int64_t>{4, 5, 2}));
  EXPECT_EQ(fitted({4, 5, 3}, 8), (std::vector<int64_t>{4, 4, 0}));
  EXPECT_EQ(fitted({9, 9, 9}, 15), sizes);
  EXPECT_EQ(fitted({0, 0, 0}, 0), (std::vector<int64_t>{0, 0, 0}));
}

std::vector<TokenId> ids_of(std::string_view text) { return WordPrompt(text).tokens; }

TEST(Recovery, AnAnswerGetsWhatTheOriginalSays) {
  const auto original = ids_of("born in Bar ce lo na in 1 9 0 2"), compressed = ids_of("born Bar lo na 1 2");
  // The start of the answer would lack the space of " Bar"; tokens are compared whole.
  EXPECT_EQ(recover_answer(original, compressed, ids_of("x Bar lo na , 1 2 .")), ids_of("x Bar ce lo na , 1 9 0 2 ."));
  EXPECT_EQ(recover_answer(original, compressed, ids_of("x lo y")), ids_of("x lo y"));  // one token quotes nothing
  EXPECT_EQ(recover_answer(original, compressed, {}), std::vector<TokenId>{});
  EXPECT_EQ(recover_answer(original, ids_of("na born"), ids_of("na born")), ids_of("na born"));  // not in this order
}

// The shortest piece that contains the quote, by trying all.
std::vector<TokenId> plain_piece(const std::vector<TokenId>& text, const std::vector<TokenId>& quote) {
  for (size_t length = quote.size(); length <= text.size(); ++length)
    for (size_t begin = 0; begin + length <= text.size(); ++begin) {
      if (text[begin] != quote.front() || text[begin + length - 1] != quote.back()) continue;
      size_t found = 0;
      for (size_t i = begin; i < begin + length && found < quote.size(); ++i) found += text[i] == quote[found];
      if (found == quote.size())
        return {text.begin() + static_cast<ptrdiff_t>(begin), text.begin() + static_cast<ptrdiff_t>(begin + length)};
    }
  return quote;
}

TEST(Recovery, ReplacesQuotesByTheShortestPiece) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    uint64_t drawn = 0;
    const auto draw = [&](int below) { return static_cast<TokenId>(philox_uniform(seed, 2, drawn++) * below); };
    std::vector<TokenId> original, compressed, answer;
    for (int i = 0; i < 30; ++i) original.push_back(draw(6));
    for (const TokenId token : original)
      if (draw(3) == 0) compressed.push_back(token);
    for (int i = 0; i < 9; ++i) answer.push_back(draw(7));
    std::vector<TokenId> expected;
    for (size_t at = 0; at < answer.size();) {
      size_t length = answer.size() - at;
      const auto quoted = [&](size_t count) {
        const auto begin = answer.begin() + static_cast<ptrdiff_t>(at);
        return std::search(compressed.begin(), compressed.end(), begin, begin + static_cast<ptrdiff_t>(count)) !=
               compressed.end();
      };
      while (length > 1 && !quoted(length)) --length;
      const std::vector<TokenId> quote(answer.begin() + static_cast<ptrdiff_t>(at),
                                       answer.begin() + static_cast<ptrdiff_t>(at + length));
      const auto piece = length < 2 ? quote : plain_piece(original, quote);
      expected.insert(expected.end(), piece.begin(), piece.end());
      at += length;
    }
    EXPECT_EQ(recover_answer(original, compressed, answer), expected) << seed;
  }
}

}  // namespace
}  // namespace millrace
