// What weight sources read: a chunk of a prompt, and streams of one step, share each read. And what a mapped file that
// is cut off does to the streams of its model.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "copied_models.h"
#include "engine/engine_core.h"
#include "models/weight_source.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class WeightReads : public CopiedModels {
 protected:
  static Result<std::shared_ptr<const LanguageModel>> load(const std::string& path, const std::string& weights) {
    LoadOptions options;
    options.threads = 2;
    options.context = 128;
    options.weights = weights;
    return LanguageModel::load(path, options);
  }
  static std::unique_ptr<EngineCore> engine_of(const std::shared_ptr<const LanguageModel>& model) {
    auto core = EngineCore::create(model, {.threads = 2, .context = 128, .max_streams = 2, .batch_tokens = 64});
    EXPECT_TRUE(core.ok()) << core.error().message;
    return std::move(*core);
  }
  // The tokens of one stream, or its error.
  static Result<std::vector<TokenId>> run_stream(EngineCore& core, RequestId id) {
    Request request;
    request.prompt = {1, 5, 9, 2};
    request.max_tokens = 5;
    request.ignore_eos = true;
    MILLRACE_TRY_VOID(core.add(id, request));
    std::vector<TokenEvent> events;
    while (!core.idle()) core.step(events);
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events) {
      if (event.error.message != "") return event.error;
      tokens.push_back(event.token);
    }
    return tokens;
  }
  // One token of `streams` streams with prompts of `tokens` tokens, all in one pass.
  static void run_prompts(EngineCore& core, RequestId& id, int streams, TokenId tokens) {
    for (int i = 0; i < streams; ++i) {
      Request request;
      for (TokenId t = 0; t < tokens; ++t) request.prompt.push_back(1 + (t * 7 + static_cast<TokenId>(++id)) % 40);
      request.max_tokens = 1;
      request.ignore_eos = true;
      ASSERT_TRUE(core.add(++id, request).ok());
    }
    std::vector<TokenEvent> events;
    while (!core.idle()) core.step(events);
    for (const TokenEvent& event : events) EXPECT_EQ(event.error.message, "");
    EXPECT_EQ(std::ssize(events), streams);
  }
  // The least memory of a source with these options: found by its own error.
  int64_t least_memory(const std::string& path, const std::string& source = "experts:") {
    int64_t low = 1, high = int64_t{1} << 26;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (load(path, fmt::format("{}memory={}", source, middle)).ok())
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

// A mapped file that is cut off would end the process.
TEST_F(WeightReads, AMappedFileThatIsCutOffEndsTheStreams) {
  const std::string path = copy_of("models/millrace-stories-6m.gguf"), cache = path + ".millrace-packed";
  auto plain = load(path, "resident");
  auto loaded = load(path, "mapped:ahead=0");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  const auto core = engine_of(*loaded), other = engine_of(*plain);
  const auto want = run_stream(*other, 1);
  EXPECT_EQ(*run_stream(*core, 1), *want);
  fs::resize_file(cache, (int64_t{2} << 20) + 4096);
  for (RequestId id : {2, 3}) {
    const auto cut = run_stream(*core, id);
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().kind, ErrorKind::internal);
    EXPECT_NE(cut.error().message.find(cache + ": weights can no longer be read"), std::string::npos)
        << cut.error().message;
  }
  EXPECT_EQ(*run_stream(*other, 2), *want);
}

// A pass over a chunk of a prompt, or of two streams, reads as much as a pass over one token.
TEST_F(WeightReads, AChunkOfAPromptReadsEachLayerOnce) {
  auto model = load(copy_of("tests/golden/llama/model.gguf"), "stream:resident=0,ahead=0");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto core = engine_of(*model);
  const Model& weights = *(*model)->parts().model;
  RequestId id = 0;
  const auto bytes_read = [&](int streams, TokenId tokens) {
    const int64_t before = weights.source()->figures()->bytes_read;
    run_prompts(*core, id, streams, tokens);
    return weights.source()->figures()->bytes_read - before;
  };
  const int64_t one = bytes_read(1, 1);
  EXPECT_GT(one, 0);
  EXPECT_EQ(bytes_read(1, 40), one);
  EXPECT_EQ(bytes_read(2, 20), one);
}

// There is room for two experts.
TEST_F(WeightReads, AChunkOfAPromptReadsEachExpertOnce) {
  const std::string path = copy_of("tests/golden/mixtral/model.gguf");
  auto model = load(path, fmt::format("experts:guess=none,memory={}", least_memory(path)));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto core = engine_of(*model);
  const Model& weights = *(*model)->parts().model;
  const ArchSpec& spec = weights.spec();
  const int64_t experts = spec.layer_count() * spec.layers[0].experts.experts;
  const WeightFigures before = *weights.source()->figures();
  RequestId id = 0;
  run_prompts(*core, id, 2, 32);
  const WeightFigures after = *weights.source()->figures();
  const int64_t leased = after.hits + after.misses - before.hits - before.misses;
  EXPECT_GT(leased, experts / 2);  // 64 tokens choose most of the experts
  EXPECT_LE(leased, experts);
  EXPECT_LE(after.reads - before.reads, leased);
}

}  // namespace
}  // namespace millrace
