// The executor of a model: text that ends within a character, a model without text, memory of adapters, and the layer
// whose attention tells which blocks matter.
#include "run/compatibility/checked_request_test.h"
#include "run/edited_model_test.h"
#include "run/executors/cpu_executor.h"
#include "run/executors/stepped_stream_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

using testing::EditedModel;

std::unique_ptr<Executor> executor_of(std::shared_ptr<const LanguageModel> model, EngineOptions options = {}) {
  options.threads = 1;
  auto made = CpuExecutor::create(std::move(model), options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

std::unique_ptr<testing::SteppedStream> stream_of(Executor& executor, const Request& request) {
  auto stream = std::make_unique<testing::SteppedStream>();
  Sequence& s = stream->sequence;
  s.tokens = request.prompt;
  s.prompt_tokens = s.size();
  s.request = request;
  s.prefix.caches = true;
  const auto begun = executor.chooser().begin(stream->ref());
  EXPECT_TRUE(begun.ok()) << (begun.ok() ? "" : begun.error().message);
  for (int64_t i = 0; i < executor.home().kv().blocks_for(s.size() + 8); ++i)
    s.kv.blocks.push_back(*executor.home().kv().allocate());
  return stream;
}

std::shared_ptr<const LanguageModel> texts_golden(const std::string& name, int64_t memory = 0) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf",
                                   {.threads = 1, .context = 128, .memory = memory});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

// Half a character waits for its other half; at the end of the answer a mark stands for it.
TEST(CpuExecutorTexts, AnAnswerThatEndsWithinACharacter) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "ends_within_a_character");
  files.with_two_bytes();
  auto executor = executor_of(files.load());
  Request request;
  request.prompt = {1};
  for (const bool whole : {false, true}) {
    auto stream = stream_of(*executor, request);
    TokenEvent event;
    event.token = 93;
    executor->chooser().write(stream->ref(), event);
    EXPECT_EQ(event.text, "");
    if (whole) {
      event.token = 92;
      executor->chooser().write(stream->ref(), event);
      EXPECT_EQ(event.text, "\u00e9");
    }
    TokenEvent last;
    last.text = "before";
    executor->chooser().flush(stream->ref(), last);
    EXPECT_EQ(last.text, whole ? "before" : "before\ufffd");
    TokenEvent again;
    executor->chooser().flush(stream->ref(), again);
    EXPECT_EQ(again.text, "");
  }
}

TEST(CpuExecutorTexts, WithoutATokenizerThereIsNoText) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "executor_without_tokenizer");
  files.without_tokenizer();
  auto executor = executor_of(files.load());
  ASSERT_TRUE(executor);
  Request request;
  request.prompt = {1, 2, 3};
  EXPECT_TRUE(executor->check(request).ok());
  Request stopped = request, constrained = request;
  stopped.stop = {"x"};
  constrained.constraint = {.kind = Constraint::Kind::regex, .text = "a+"};
  const auto stop = testing::checked_request(*executor, stopped),
             constraint = testing::checked_request(*executor, constrained);
  const auto compiled = executor->chooser().compile(constrained.constraint, {});
  ASSERT_FALSE(stop.ok() || constraint.ok() || compiled.ok());
  EXPECT_EQ(stop.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(stop.error().message,
            "a stop string does not go with this model: it has no tokenizer, so that there is no text to match; use "
            "stop tokens");
  EXPECT_EQ(constraint.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      constraint.error().message,
      "a constraint does not go with this model: it has no tokenizer, so that there is no text to hold to it; omit "
      "the constraint");
  EXPECT_EQ(compiled.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(compiled.error().message, "constraint: the model has no tokenizer, so there is no text to hold to it");
  EXPECT_FALSE(executor->chooser().compiled(constrained.constraint).has_value());
  EXPECT_TRUE(executor->chooser().compile({}, {}).ok());
  EXPECT_TRUE(executor->chooser().compiled({}).has_value());
  EXPECT_TRUE(executor->chooser().end_tokens().empty());
  request.sampling.allowed_tokens = {20};
  request.stop_tokens = {21};
  auto stream = stream_of(*executor, request);
  testing::run_chunks(*executor, {{stream.get(), {0, 0, 3, true}}});
  TokenEvent event;
  const auto ended = executor->chooser().choose(stream->ref(), 0, event);
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_FALSE(*ended);
  EXPECT_EQ(event.token, 20);
  executor->chooser().write(stream->ref(), event);
  executor->chooser().flush(stream->ref(), event);
  EXPECT_EQ(event.text, "");
}

// The first stream with an adapter takes memory for its products, the next ones use the same.
TEST(CpuExecutorTexts, AdaptersMemoryIsHeld) {
  const auto model = texts_golden("llama3", int64_t{2} << 30);
  const auto bytes = [&] {
    for (const MemoryAccount& one : model->parts().accounts->list())
      if (one.name == "adapters") return one.bytes;
    return int64_t{0};
  };
  {
    EngineOptions options;
    options.kv_tokens = 1024;
    options.adapters = {std::string("style=") + MILLRACE_SOURCE_DIR + "/tests/golden/lora/llama3"};
    auto executor = executor_of(model, options);
    ASSERT_TRUE(executor);
    Request request;
    request.prompt = {1, 2, 3};
    const auto plain = stream_of(*executor, request);
    const int64_t loaded = bytes();
    request.adapters = {{"style", 1}};
    const auto first = stream_of(*executor, request);
    EXPECT_EQ(first->own.adapters.size(), 1u);
    const int64_t used = bytes();
    EXPECT_GT(used, loaded);
    const auto second = stream_of(*executor, request);
    EXPECT_EQ(bytes(), used);
  }
  EXPECT_EQ(bytes(), 0);
}

// Layer 3 of 7, the middle one, sees a window of 8 tokens; layer 5 sees all, and so tells of blocks far back too.
TEST(CpuExecutorTexts, ImportanceIsOfALayerThatSeesEverything) {
  const auto model = texts_golden("gemma3");
  const auto& layers = model->parts().model->spec().layers;
  ASSERT_EQ(layers.size(), 7u);
  ASSERT_GT(layers[3].window, 0);
  ASSERT_GT(layers[4].window, 0);
  ASSERT_EQ(layers[5].window, 0);
  EngineOptions options;
  options.block_tokens = 4;
  auto executor = executor_of(model, options);
  ASSERT_TRUE(executor);
  executor->observe_attention();
  Request request;
  for (TokenId i = 0; i < 40; ++i) request.prompt.push_back(1 + i * 7 % 90);
  auto stream = stream_of(*executor, request);
  testing::run_chunks(*executor, {{stream.get(), {0, 0, 40, true}}});
  ASSERT_EQ(stream->importance.size(), 10u);
  double sum = 0;
  for (const float share : stream->importance) {
    EXPECT_GT(share, 1e-4);
    sum += share;
  }
  EXPECT_NEAR(sum / 10, 1, 1e-3);
}

}  // namespace
}  // namespace millrace
