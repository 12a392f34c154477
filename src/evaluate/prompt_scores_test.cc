// Scores for prompt compressors: against the scorer's own log-probabilities, by another model, and what they are worth:
// the rest of a story is likelier after its compressed beginning than after one with as many random words missing.
#include "evaluate/prompt_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/memory.h"
#include "base/philox.h"
#include "prompt/text_units.h"
#include "prompt/token_ends.h"
#include "run/drafting/draft_runner.h"
#include "sampling/logprobs.h"
#include "test_paths.h"

namespace millrace {

struct ModelScoresPeek {
  static ThreadPool& pool(ModelScores& scores, const std::string& path) {
    return scores.opened_.at(path).scorer->pool();
  }
  static const LanguageModel& model(ModelScores& scores, const std::string& path) {
    return *scores.opened_.at(path).model;
  }
};

namespace {

const std::string kGoldenLlama = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama";

std::shared_ptr<const LanguageModel> model_for_scores(const std::string& path, int64_t context = 0) {
  auto model = LanguageModel::load(path, {.threads = 1, .context = context});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

// The sum over windows that are computed one by one.
std::vector<float> plain_information(const std::shared_ptr<const LanguageModel>& model,
                                     const std::vector<TokenId>& tokens, int64_t window) {
  auto scorer = Scorer::create(model, {.threads = 2, .context = window, .batch_tokens = 7});
  std::vector<float> out = {INFINITY};
  for (const ScoreWindow& one : document_windows(std::ssize(tokens), window)) {
    const auto done =
        (*scorer)->run(tokens, std::span(&one, 1), -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
          for (const ScoredRow& row : rows)
            out.push_back(
                -compute_logprobs({row.logits, static_cast<size_t>((*scorer)->vocab())}, row.target, 0).chosen.logprob);
          return {};
        });
    EXPECT_TRUE(done.ok());
  }
  return out;
}

TEST(ModelScores, AreTheModelsOwnLogProbabilities) {
  const auto model = model_for_scores("stories");
  ASSERT_TRUE(model);
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < 700; ++i)
    tokens.push_back(static_cast<TokenId>(philox_uniform(5, 2, i) * static_cast<double>(model->info().vocab)));
  const int64_t window = std::min(ModelScores::kWindow, model->parts().model->context());
  ModelScores scores(model, 1), again(model, 2);
  const auto first = scores.self_information("", tokens);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(*first, plain_information(model, tokens, window));
  EXPECT_EQ(*first, again.self_information("", tokens).value());  // bits
  EXPECT_EQ(*first, scores.self_information("", tokens).value());
  EXPECT_EQ(scores.self_information("", std::vector<TokenId>{3}).value(), std::vector<float>{INFINITY});
  EXPECT_TRUE(scores.self_information("", {}).value().empty());
}

TEST(ModelScores, AnotherModelReadsTheText) {
  const auto model = model_for_scores(kGoldenLlama);
  ASSERT_TRUE(model);
  ModelScores scores(model, 1);
  const std::vector<std::string> files = {kGoldenLlama};
  ASSERT_TRUE(scores.open(files).ok());
  const auto tokens = model->encode("Ann has a red hat and a dog");
  ASSERT_TRUE(tokens.ok());
  const auto own = scores.self_information("", *tokens), other = scores.self_information(kGoldenLlama, *tokens);
  ASSERT_TRUE(own.ok() && other.ok()) << (other.ok() ? "" : other.error().message);
  ASSERT_EQ(own->size(), other->size());
  for (size_t i = 1; i < own->size(); ++i) EXPECT_NEAR((*own)[i], (*other)[i], 1e-3) << i;  // the same tokenizer
}

TEST(ModelScores, MapsOtherTokensByBytes) {
  const auto model = model_for_scores("stories");
  ASSERT_TRUE(model);
  ModelScores scores(model, 1);
  const std::vector<std::string> files = {kGoldenLlama};
  ASSERT_TRUE(scores.open(files).ok());
  const std::string text = "Once upon a time there was a dog";
  const auto tokens = model->encode(text);
  const auto mapped = scores.self_information(kGoldenLlama, *tokens);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  const auto other = model_for_scores(kGoldenLlama);
  ModelScores direct(other, 1);
  const auto read = other->encode(text, true, false);
  const auto given = direct.self_information("", *read);
  ASSERT_TRUE(given.ok());
  double sum = 0, expected = 0;  // nothing is lost and nothing counted twice, except for tokens without text
  const auto own_ends = token_ends(*model->parts().tokenizer, *tokens, text);
  ASSERT_TRUE(own_ends);
  size_t unscored = 0;  // bytes of the first tokens, which share one with the other model's first token
  for (size_t i = 0; i < mapped->size(); ++i) {
    if (std::isfinite((*mapped)[i]))
      sum += static_cast<double>((*mapped)[i]);
    else
      unscored = (*own_ends)[i];
  }
  EXPECT_LT(unscored, text.size() / 4);
  const auto ends = token_ends(*other->parts().tokenizer, *read, text);
  ASSERT_TRUE(ends);
  for (size_t i = 1; i < given->size(); ++i)
    if ((*ends)[i] > (*ends)[i - 1] && (*ends)[i] > unscored) expected += static_cast<double>((*given)[i]);
  EXPECT_NEAR(sum, expected, 1e-3 * expected);
}

// A scorer is opened first, for its default context, which is long enough for the draft model's streams.
TEST(ModelScores, TheDraftModelOfTheSameFileIsTheSameModel) {
  const auto model = model_for_scores("stories");
  ASSERT_TRUE(model);
  const std::string file = "stories";
  ModelScores scores(model, 1);
  ASSERT_TRUE(scores.open(std::vector<std::string>{file}).ok());
  const LanguageModel* scorer = &ModelScoresPeek::model(scores, file);
  const int64_t before = model->parts().accounts->total();
  auto draft = DraftRunner::load(*model, file, 1, 32);
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->get(), scorer);
  EXPECT_NE(draft->get(), model.get());
  EXPECT_EQ(model->parts().accounts->total(), before);
  const auto other = model_for_scores("stories");
  draft = DraftRunner::load(*other, file, 1, 32);
  ASSERT_TRUE(draft.ok());
  ModelScores later(other, 1);  // must not depend on who came first: its windows are those of the default context
  ASSERT_TRUE(later.open(std::vector<std::string>{file}).ok());
  EXPECT_NE(&ModelScoresPeek::model(later, file), draft->get());
}

TEST(ModelScores, ACheckBetweenPassesEndsThem) {
  const auto model = model_for_scores("stories");
  ASSERT_TRUE(model);
  ModelScores scores(model, 1);
  int left = 2;
  scores.check_with([&]() -> Result<void> {
    if (--left == 0) return Error::cancelled("enough");
    return {};
  });
  const auto ended = scores.self_information("", std::vector<TokenId>(3000, 5));
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().message, "enough");
  EXPECT_EQ(left, 0);
}

TEST(ModelScores, Messages) {
  const auto model = model_for_scores(kGoldenLlama);
  ASSERT_TRUE(model);
  ModelScores scores(model, 1);
  const auto unknown = scores.self_information("other.gguf", std::vector<TokenId>{1, 2});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message, "prompt: model: other.gguf is not one of those that the server was started with");
  const auto longer = scores.self_information("", std::vector<TokenId>(ModelScores::kMaxTokens + 1, 2));
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().message, "prompt: has 131073 tokens; at most 131072 can be compressed");
  const std::vector<std::string> files = {"/nowhere/model.gguf"};
  const auto missing = scores.open(files);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message.find("prompt: model: "), 0u) << missing.error().message;
}

TEST(ModelScores, MemoryIsCharged) {
  auto model = LanguageModel::load("stories", {.threads = 1, .memory = int64_t{512} << 20});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto& accounts = *(*model)->parts().accounts;
  const int64_t before = accounts.total();
  {
    ModelScores scores(*model, 1);
    const std::vector<std::string> own = {""};
    ASSERT_TRUE(scores.open(own).ok());
    EXPECT_GT(accounts.total(), before);
    const int64_t opened = accounts.total();
    const std::vector<TokenId> tokens(5000, 5);
    ASSERT_TRUE(scores.self_information("", tokens).ok());
    EXPECT_EQ(accounts.total(), opened);  // does not grow with the prompt
  }
  EXPECT_EQ(accounts.total(), before);
}

const char* const
    kStories[] = {R"(Once upon a time, there was a little girl named Lily. She lived in a small house near a big green park. Every morning she went to the park with her brown dog Max. One day, Max saw a red ball under a tree. Max wanted to play with the ball, but a big black cat was sitting on it. Lily was not afraid. She gave the cat a piece of her fish, and the cat jumped up and ran after the fish. Max took the ball and they played all day. In the evening, Lily told her mom about the red ball. Her mom smiled and said, "You were very kind to the cat." Then Lily and Max went to sleep with the red ball next to the bed. The next day, the cat came back to the park. It wanted more fish, so Lily gave it some of her lunch. Max and the cat played with the red ball. They were all good friends.)",
                  R"(One day, Tom and his sister Mia found a small boat by the lake. The boat was old and had a hole in it. Tom wanted to fix the boat, so he ran home to ask his dad for some wood. His dad was happy to help. They worked together, and soon the boat was ready. Mia painted it blue and yellow. The children put the boat on the water and it did not sink. They were very happy. A little duck came and sat in the boat. "The duck likes our boat," said Mia. Tom laughed and gave the duck some bread. The next day the duck came back with her babies. All of the babies wanted to sit in the blue boat too. Tom and Mia gave them bread, and the ducks ate it all. Their dad said that it was the best boat on the lake.)",
                  R"(Ben had a green kite. He loved to fly his kite on the hill. One windy day the kite flew very high and got stuck in a tall tree. Ben was sad and he started to cry. A friendly bird heard him and asked, "Why are you crying?" Ben said, "My kite is stuck in the tree." The bird said, "Do not worry, I can help you." The bird flew to the top of the tree and pulled the kite with its beak. The green kite fell down to the ground. Ben was so happy that he danced. He thanked the bird and shared his cookie with it. From that day on, the bird came to the hill every time that Ben went to fly his kite. They played together until the sun went down. Ben always had a cookie for his friend.)"};

struct Halves {
  std::vector<TokenId> begin, end;
};

Halves halves(const LanguageModel& model, const std::string& story) {
  const auto tokens = model.encode(story).value();
  const auto middle = tokens.begin() + static_cast<ptrdiff_t>(tokens.size() * 2 / 3);
  return {{tokens.begin(), middle}, {middle, tokens.end()}};
}

// Nats of a token of `end` after `begin`.
double mean_information(ModelScores& scores, std::vector<TokenId> begin, const std::vector<TokenId>& end) {
  const size_t first = begin.size();
  begin.insert(begin.end(), end.begin(), end.end());
  const auto all = scores.self_information("", begin).value();
  return std::accumulate(all.begin() + static_cast<ptrdiff_t>(first), all.end(), 0.0) / static_cast<double>(end.size());
}

// Drops random units until at most `most` tokens remain.
std::vector<TokenId> with_random_units(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, TextUnit unit,
                                       int64_t most, uint64_t seed) {
  std::vector<std::string> texts;
  std::vector<char> fixed;
  for (const TokenId token : tokens) {
    texts.push_back(tokenizer.piece(token));
    fixed.push_back(tokenizer.is_control(token));
  }
  const auto words = split_units(texts, fixed, unit);
  std::vector<std::pair<double, TokenRange>> order;
  for (size_t i = 0; i < words.size(); ++i) order.emplace_back(philox_uniform(seed, 3, i), words[i]);
  std::ranges::sort(order, {}, [](const auto& one) { return one.first; });
  std::vector<char> gone(tokens.size());
  int64_t left = std::ssize(tokens);
  for (const auto& [unused, word] : order) {
    if (left <= most) break;
    std::fill_n(gone.begin() + word.first, word.count, char{1});
    left -= word.count;
  }
  std::vector<TokenId> out;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!gone[i]) out.push_back(tokens[i]);
  return out;
}

// label(once): compares figures of the shipped model
TEST(SelectiveContextWorth, TheEndOfAStoryIsLikelierThanWithRandomWordsDropped) {
  const auto model = model_for_scores("stories");
  ASSERT_TRUE(model);
  const Tokenizer& tokenizer = *model->parts().tokenizer;
  ModelScores scores(model, 1);
  for (const char* unit : {"word", "sentence"}) {
    double sums[3] = {};  // nats over all ratios: whole, selected, random
    for (const char* ratio : {"0.2", "0.35", "0.5", "0.65", "0.8"}) {
      const auto pipeline = PromptPipeline::create(
          std::vector<std::string>{std::string("selective_context:keep_last=16,ratio=") + ratio + ",unit=" + unit});
      double whole = 0, selected = 0, random = 0, kept = 0;
      constexpr int kSeeds = 8;
      for (const char* story : kStories) {
        const Halves parts = halves(*model, story);
        const auto compressed = pipeline->apply(&tokenizer, parts.begin, {}, 1 << 20, &scores);
        ASSERT_TRUE(compressed.ok());
        kept += compressed->effects[0].ratio() / std::size(kStories);
        whole += mean_information(scores, parts.begin, parts.end) / std::size(kStories);
        selected += mean_information(scores, compressed->tokens, parts.end) / std::size(kStories);
        // As many tokens as the compressor kept, and the same last ones.
        const auto last = parts.begin.end() - 16;
        for (uint64_t seed = 0; seed < kSeeds; ++seed) {
          auto some = with_random_units(tokenizer, {parts.begin.begin(), last}, find_text_unit(unit).value(),
                                        std::ssize(compressed->tokens) - 16, seed);
          some.insert(some.end(), last, parts.begin.end());
          random += mean_information(scores, some, parts.end) / kSeeds / std::size(kStories);
        }
      }
      std::printf(
          "%-8s ratio %s: %.0f %% of the tokens; perplexity of the end %.2f whole, %.2f compressed, %.2f random "
          "units\n",
          unit, ratio, 100 * kept, std::exp(whole), std::exp(selected), std::exp(random));
      sums[0] += whole, sums[1] += selected, sums[2] += random;
    }
    if (std::string_view(unit) != "word") continue;
    EXPECT_LT(sums[0], sums[1]);
    EXPECT_LT(sums[1], sums[2]);
  }
}

// Two models at once: one thread pool, and one budget that both are charged to.
TEST(ModelScores, TwoModelsShareThreadsAndBudget) {
  const int64_t budget = peak_resident_bytes() + (int64_t{512} << 20);
  auto model = LanguageModel::load("stories", {.threads = 1, .memory = budget});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto tokens = (*model)->encode("Once upon a time there was a dog");
  const MemoryAccounts& accounts = *(*model)->parts().accounts;
  const auto charged = [&](const std::string& name) {
    for (const MemoryAccount& one : accounts.list())
      if (one.name == name) return one.bytes;
    return int64_t{0};
  };
  const int64_t before = accounts.total();
  {
    ModelScores scores(*model, 2);
    const std::vector<std::string> files = {kGoldenLlama};
    ASSERT_TRUE(scores.open(files).ok());
    const int64_t kv = charged("KV");
    EXPECT_GT(charged("prompt model"), 0);
    ASSERT_TRUE(scores.self_information("", *tokens).ok());
    EXPECT_GT(charged("KV"), kv);
    EXPECT_EQ(&ModelScoresPeek::pool(scores, ""), &ModelScoresPeek::pool(scores, kGoldenLlama));
    EXPECT_EQ(ModelScoresPeek::pool(scores, "").threads(), 2);
    // In turns on one pool: the same bits as alone.
    const auto mixed = scores.self_information(kGoldenLlama, *tokens);
    ModelScores alone(*model, 1);
    EXPECT_EQ(*scores.self_information("", *tokens), *alone.self_information("", *tokens));
    EXPECT_EQ(*scores.self_information(kGoldenLlama, *tokens), *mixed);
  }
  EXPECT_EQ(accounts.total(), before);
}

}  // namespace
}  // namespace millrace
