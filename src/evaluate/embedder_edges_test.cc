// The embedder's options, each refused just beyond its limit; its memory to the byte; and texts after one that failed
// in the middle of a batch.
#include <gtest/gtest.h>

#include "base/cpu.h"
#include "evaluate/embedder.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::shared_ptr<const LanguageModel> edge_model(int64_t memory = 0) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 64, .memory = memory});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

TEST(EmbedderEdges, OptionsThatAreRefused) {
  const auto model = edge_model();
  struct Case {
    EmbedderOptions options;
    const char* message;
  };
  const Case cases[] = {
      {{.context = 0}, "context: must be 1 to 64 tokens, is 0"},
      {{.context = 65}, "context: must be 1 to 64 tokens, is 65"},
      {{.context = 64, .batch_tokens = 0}, "batch tokens: must be 1 to 16777216, is 0"},
      {{.context = 64, .batch_tokens = (1 << 24) + 1}, "batch tokens: must be 1 to 16777216, is 16777217"},
      {{.context = 64, .kv_format = "q99"}, "KV format: no attention kernel supports q99; try f32, f16, bf16 or q8_0"},
      {{.context = 64, .kv_format = "q4_k"},
       "KV format: no attention kernel supports q4_k; try f32, f16, bf16 or q8_0"},
  };
  for (Case one : cases) {
    one.options.threads = 1;
    const auto made = Embedder::create(model, one.options);
    ASSERT_FALSE(made.ok()) << one.message;
    EXPECT_EQ(made.error().kind, ErrorKind::user);
    EXPECT_EQ(made.error().message, one.message);
  }
  for (int64_t context : {1, 64}) {
    auto made = Embedder::create(model, {.threads = 1, .context = context, .batch_tokens = 1});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->context(), context);
    EXPECT_EQ((*made)->width(), 64);
  }
}

TEST(EmbedderEdges, MemoryIsCountedToTheByte) {
  const auto model = edge_model(int64_t{2} << 30);
  const auto bytes = [&](const char* name) {
    for (const MemoryAccount& one : model->parts().accounts->list())
      if (one.name == name) return one.bytes;
    return int64_t{0};
  };
  int64_t row = 0;
  for (const KvLayer& layer : model->parts().model->kv_layers()) row += 2 * layer.kv_heads * layer.head_dim * 4;
  const int threads = available_cores() + 3;
  for (const auto& [context, batch, blocks] : {std::tuple(33, 40, 3 + 6), {1, 1, 1 + 2}, {64, 32, 4 + 5}}) {
    const auto made =
        Embedder::create(model, {.threads = threads, .context = context, .batch_tokens = batch, .kv_format = "f32"});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(bytes("KV"), blocks * 16 * row) << context;
    const ForwardBytes forward = ForwardContext::plan(model->parts().model->spec(), {batch, 1, context}, threads, 16);
    EXPECT_EQ(bytes("activations"), forward.activations) << context;
    EXPECT_EQ(bytes("logits"), forward.logits) << context;
  }
  EXPECT_EQ(bytes("KV"), 0);
}

// The first text's error leaves the second one half computed, in four of the six blocks: the next text finds them free.
TEST(EmbedderEdges, ATextThatWasLeftHalfwayLeavesNothing) {
  const auto model = edge_model();
  std::vector<TokenId> text;
  for (TokenId i = 0; i < 64; ++i) text.push_back(1 + i);
  const std::vector<std::vector<TokenId>> two = {{5}, text}, alone = {text};
  for (const Pooling pooling : {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last}) {
    std::vector<std::vector<float>> expected, values;
    const auto into = [](auto& out) {
      return [&out](size_t, std::vector<float> one) -> Result<void> {
        out.push_back(std::move(one));
        return {};
      };
    };
    const EmbedderOptions options{.threads = 1, .context = 64, .batch_tokens = 4};
    auto fresh = Embedder::create(model, options), used = Embedder::create(model, options);
    ASSERT_TRUE(fresh.ok() && used.ok());
    for (int i = 0; i < 3; ++i) {
      const auto failed = (*used)->run(two, pooling, [](size_t, auto) { return Result<void>(Error::cancelled("x")); });
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().message, "x");
    }
    ASSERT_TRUE((*fresh)->run(alone, pooling, into(expected)).ok());
    ASSERT_TRUE((*used)->run(alone, pooling, into(values)).ok());
    EXPECT_EQ(values, expected);
    EXPECT_EQ(values.size(), 1u);
  }
}

TEST(EmbedderEdges, TextsThatAreRefused) {
  auto embedder = Embedder::create(edge_model(), {.threads = 1, .context = 8});
  ASSERT_TRUE(embedder.ok());
  const auto message = [&](const std::vector<TokenId>& second) {
    const std::vector<std::vector<TokenId>> texts = {{1}, second};
    const auto done = (*embedder)->run(texts, Pooling::last, [](size_t, auto) { return Result<void>(); });
    return done.ok() ? std::string() : done.error().message;
  };
  EXPECT_EQ(message({0, 127}), "");
  EXPECT_EQ(message(std::vector<TokenId>(8, 1)), "");
  EXPECT_EQ(message({}), "text 1: must have 1 to 8 tokens, has 0");
  EXPECT_EQ(message(std::vector<TokenId>(9, 1)), "text 1: must have 1 to 8 tokens, has 9");
  EXPECT_EQ(message({-1}), "text 1: token -1 is outside the model's vocabulary of 128");
  EXPECT_EQ(message({1, 128}), "text 1: token 128 is outside the model's vocabulary of 128");
  EXPECT_TRUE((*embedder)->run({}, Pooling::last, [](size_t, auto) { return Result<void>(); }).ok());
}

}  // namespace
}  // namespace millrace
