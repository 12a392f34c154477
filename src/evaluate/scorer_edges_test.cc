// Edge cases of the scorer: hand-computed windows, every error message, the start token, and batches full of rows.
#include <gtest/gtest.h>

#include "base/memory_accounts.h"
#include "evaluate/scorer.h"
#include "test_paths.h"

namespace millrace {
namespace {

using Windows = std::vector<ScoreWindow>;

std::shared_ptr<const LanguageModel> golden(int64_t memory = 0) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 64, .memory = memory});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

TEST(ScorerEdges, Chunks) {
  EXPECT_EQ(chunk_windows(16, 8), (Windows{{0, 8, 5}, {8, 8, 5}}));
  EXPECT_EQ(chunk_windows(8, 8), (Windows{{0, 8, 5}}));
  EXPECT_EQ(chunk_windows(5, 2), (Windows{{0, 2, 2}, {2, 2, 2}}));
  EXPECT_EQ(chunk_windows(9, 3), (Windows{{0, 3, 2}, {3, 3, 2}, {6, 3, 2}}));
  EXPECT_TRUE(chunk_windows(9, 1).empty());
  EXPECT_TRUE(chunk_windows(0, 8).empty());
}

TEST(ScorerEdges, Strides) {
  EXPECT_EQ(strided_windows(9, 4, 3), (Windows{{0, 4, 1}, {3, 4, 1}}));
  EXPECT_EQ(strided_windows(10, 4, 3), (Windows{{0, 4, 1}, {3, 4, 1}, {6, 4, 1}}));
  EXPECT_EQ(strided_windows(6, 4, 1), (Windows{{0, 4, 3}, {1, 4, 3}, {2, 4, 3}}));
  EXPECT_EQ(strided_windows(3, 2, 1), (Windows{{0, 2, 1}, {1, 2, 1}}));
  EXPECT_TRUE(strided_windows(9, 1, 1).empty());
  EXPECT_TRUE(strided_windows(9, 4, 0).empty());
  EXPECT_TRUE(strided_windows(3, 4, 1).empty());
}

TEST(ScorerEdges, Documents) {
  EXPECT_EQ(document_windows(2, 2), (Windows{{0, 2, 1}}));
  EXPECT_EQ(document_windows(4, 2), (Windows{{0, 2, 1}, {1, 2, 1}, {2, 2, 1}}));
  EXPECT_EQ(document_windows(5, 8), (Windows{{0, 5, 1}}));
  EXPECT_EQ(document_windows(8, 8), (Windows{{0, 8, 1}}));
  EXPECT_EQ(document_windows(13, 8), (Windows{{0, 8, 1}, {4, 8, 4}, {8, 5, 4}}));
  EXPECT_EQ(document_windows(7, 3), (Windows{{0, 3, 1}, {1, 3, 2}, {2, 3, 2}, {3, 3, 2}, {4, 3, 2}}));
  EXPECT_TRUE(document_windows(1, 8).empty());
  EXPECT_TRUE(document_windows(8, 1).empty());
  EXPECT_EQ((ScoreWindow{3, 8, 5}.scored()), 3);
}

TEST(ScorerEdges, InvalidOptions) {
  const auto model = golden();
  struct Case {
    ScorerOptions options;
    const char* message;
  };
  const Case cases[] = {
      {{.context = 1}, "context: must be 2 to 16777216 tokens, is 1"},
      {{.context = (1 << 24) + 1}, "context: must be 2 to 16777216 tokens, is 16777217"},
      {{.context = 65}, "context: the model was loaded for 64 tokens, 65 requested"},
      {{.context = 64, .batch_tokens = 0}, "batch tokens: must be 1 to 16777216, is 0"},
      {{.context = 64, .batch_tokens = (1 << 24) + 1}, "batch tokens: must be 1 to 16777216, is 16777217"},
      {{.context = 64, .kv_format = "q99"}, "KV format: unknown name q99; try f32, f16, bf16 or q8_0"},
      {{.context = 64, .kv_format = "q4_k"},
       "KV format: no attention kernel supports q4_k; try f32, f16, bf16 or q8_0"},
  };
  for (const Case& one : cases) {
    const auto made = Scorer::create(model, one.options);
    ASSERT_FALSE(made.ok()) << one.message;
    EXPECT_EQ(made.error().kind, ErrorKind::user);
    EXPECT_EQ(made.error().message, one.message);
  }
  for (const ScorerOptions& good : {ScorerOptions{.threads = 1, .context = 2, .batch_tokens = 1},
                                    {.threads = 1, .context = 64},
                                    {.threads = 1, .context = 64, .batch_tokens = 1 << 24}})
    EXPECT_TRUE(Scorer::create(model, good).ok()) << good.context;
}

TEST(ScorerEdges, InvalidTextsAndWindows) {
  const auto model = golden();
  const int64_t vocab = model->info().vocab;
  auto scorer = Scorer::create(model, {.threads = 1, .context = 16});
  ASSERT_TRUE(scorer.ok());
  EXPECT_EQ((*scorer)->vocab(), vocab);
  int64_t rows_seen = 0;
  const auto run = [&](std::vector<TokenId> tokens, ScoreWindow window, TokenId start) {
    const auto done = (*scorer)->run(tokens, std::vector{window}, start, [&](std::span<const ScoredRow> rows) {
      rows_seen += std::ssize(rows);
      return Result<void>();
    });
    return done.ok() ? std::string() : done.error().message;
  };
  const auto last = static_cast<TokenId>(vocab - 1), beyond = static_cast<TokenId>(vocab);
  const std::vector<TokenId> text = {0, last, 5, 6};
  const std::string of = std::to_string(vocab);
  EXPECT_EQ(run(text, {0, 4, 1}, -1), "");
  EXPECT_EQ(rows_seen, 3);
  EXPECT_EQ(run(text, {0, 4, 4}, last), "");  // nothing is scored
  EXPECT_EQ(run(text, {2, 2, 1}, 0), "");
  EXPECT_EQ(rows_seen, 4);
  EXPECT_EQ(run({1, beyond}, {0, 2, 1}, -1),
            "token 1 of the text: id " + of + " is outside the model's vocabulary of " + of);
  EXPECT_EQ(run({-1, 1}, {0, 2, 1}, -1), "token 0 of the text: id -1 is outside the model's vocabulary of " + of);
  EXPECT_EQ(run(text, {0, 2, 1}, beyond), "start token: id " + of + " is outside the model's vocabulary of " + of);
  const auto window = [](int64_t begin, int64_t count, int64_t tokens) {
    return "window at token " + std::to_string(begin) + ": " + std::to_string(count) +
           " tokens do not fit a context of 16 and a text of " + std::to_string(tokens);
  };
  EXPECT_EQ(run(text, {-1, 2, 1}, -1), window(-1, 2, 4));
  EXPECT_EQ(run(text, {0, 1, 1}, -1), window(0, 1, 4));
  EXPECT_EQ(run(text, {0, 4, 0}, -1), window(0, 4, 4));
  EXPECT_EQ(run(text, {0, 4, 5}, -1), window(0, 4, 4));
  EXPECT_EQ(run(text, {1, 4, 1}, -1), window(1, 4, 4));
  EXPECT_EQ(run(std::vector<TokenId>(40, 1), {0, 17, 1}, -1), window(0, 17, 40));
  EXPECT_EQ(run(std::vector<TokenId>(40, 1), {24, 16, 1}, -1), "");
  EXPECT_EQ(rows_seen, 19);
  EXPECT_EQ((*scorer)->run(text, {}, -1, [](auto) { return Result<void>(Error::internal("no rows, no call")); }).ok(),
            true);
}

// Logits of [windows x rows] for any batch size; the start token replaces the first one, and 0 is a valid token.
TEST(ScorerEdges, StartTokenReplacesTheFirstToken) {
  const auto model = golden();
  const auto logits = [&](std::vector<TokenId> tokens, TokenId start, int64_t batch) {
    auto scorer = Scorer::create(model, {.threads = 1, .context = 8, .batch_tokens = batch});
    EXPECT_TRUE(scorer.ok());
    std::vector<float> out;
    EXPECT_TRUE((*scorer)
                    ->run(tokens, chunk_windows(std::ssize(tokens), 8), start,
                          [&](std::span<const ScoredRow> rows) {
                            for (const ScoredRow& row : rows)
                              out.insert(out.end(), row.logits, row.logits + model->info().vocab);
                            return Result<void>();
                          })
                    .ok());
    return out;
  };
  std::vector<TokenId> text = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, with = text, with_zero = text;
  with[0] = with[8] = 20;
  with_zero[0] = with_zero[8] = 0;
  for (int64_t batch : {1, 5, 64}) {
    EXPECT_EQ(logits(text, 20, batch), logits(with, -1, 64)) << batch;
    EXPECT_EQ(logits(text, 0, batch), logits(with_zero, -1, 64)) << batch;
    EXPECT_NE(logits(text, -1, batch), logits(with, -1, 64));
  }
}

TEST(ScorerEdges, MemoryIsCountedAndReleased) {
  const auto model = golden(int64_t{2} << 30);
  const auto bytes = [&](const char* name) {
    for (const MemoryAccount& one : model->parts().accounts->list())
      if (one.name == name) return one.bytes;
    return int64_t{0};
  };
  {
    auto scorer = Scorer::create(model, {.threads = 1, .context = 33, .batch_tokens = 66, .kv_format = "f32"});
    ASSERT_TRUE(scorer.ok());
    int64_t row = 0;
    for (const KvLayer& layer : model->parts().model->kv_layers()) row += 2 * layer.kv_heads * layer.head_dim * 4;
    EXPECT_EQ(bytes("KV"), 4 * 3 * 16 * row);  // two whole windows, a tail and a head, three blocks each
    EXPECT_GT(bytes("activations"), 0);
    EXPECT_GT(bytes("logits"), 0);
  }
  EXPECT_EQ(bytes("KV"), 0);
  const auto held = model->parts().accounts->total();
  auto narrow = golden(held + (int64_t{64} << 20));
  if (!narrow) return;
  const auto large = Scorer::create(narrow, {.threads = 1, .context = 64, .batch_tokens = 1 << 20});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().kind, ErrorKind::resource);
  EXPECT_NE(large.error().message.find("lower the context or the batch, or raise the budget"), std::string::npos)
      << large.error().message;
}

}  // namespace
}  // namespace millrace
