// Attention patterns over keys in a file (KV tier disk), every member: answers have the same bits as with all keys in
// memory, for any threads, chunks, other streams and drafts; patterns that choose blocks read fewer bytes.
#include <gtest/gtest.h>

#include "pattern_texts.h"
#include "properties/key_streams.h"

namespace millrace {
namespace {

using namespace testing;

class StreamedPatterns : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 640});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *loaded;
    vocab_ = model_->info().vocab;
  }
  static EngineOptions with(const std::string& pattern, int threads, int64_t batch_tokens) {
    EngineOptions o = options(threads, batch_tokens, 16);
    o.context = 640;
    o.kv_tokens = 1280;
    o.kv_format = "f32";
    if (!pattern.empty()) o.kernels = {"attention=" + pattern};
    return o;
  }
  EngineOptions in_file(EngineOptions o) {
    int64_t& memory = memory_[o.kernels];
    if (memory == 0) memory = least_stream_memory(model_, o);
    o.kv_tier = stream_tier(memory, true);
    return o;
  }
  std::map<RequestId, Shown> run(const EngineOptions& o) {
    auto core = make_core(model_, o);
    if (!core) return {};
    for (RequestId id = 1; id <= 3; ++id) {
      const auto number = static_cast<int64_t>(id);
      EXPECT_TRUE(core->add(id, make_request(number, 250 - 60 * number, 40, vocab_)).ok());
    }
    auto shown = run_all(*core, vocab_);
    stats_ = core->stats();
    return shown;
  }
  // Patterns that leave out blocks, in each phase; the tier refuses those of hops.
  static std::vector<std::string> patterns() {
    std::vector<std::string> out;
    for (const PatternTexts& texts : pattern_texts()) {
      if (texts.some.empty() || texts.name == "diffuser") continue;
      out.push_back(texts.some);
      out.push_back(texts.some + ",phase=decode");
    }
    return out;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  EngineStats stats_;
  std::map<std::vector<std::string>, int64_t> memory_;  // by pattern: the least that an engine needs
};

TEST_P(StreamedPatterns, HaveTheBitsThatTheyHaveWithAllKeysInMemory) {
  for (const std::string& pattern : patterns()) {
    SCOPED_TRACE(pattern);
    const auto expected = run(with(pattern, 1, 512));
    for (const auto& [threads, batch] : {std::pair(2, 512), {1, 5}, {3, 23}}) {
      const auto streamed = run(in_file(with(pattern, threads, batch)));
      ASSERT_EQ(streamed.size(), expected.size());
      for (const auto& [id, shown] : expected)
        EXPECT_TRUE(shown.same_bits(streamed.at(id))) << id << ", batch " << batch;
      EXPECT_GT(stats_.key_stream.layer_blocks_read, 0);
      EXPECT_EQ(stats_.key_stream.failed_blocks, 0);
    }
  }
}

TEST_P(StreamedPatterns, DraftsKeepTheTokens) {
  for (const char* pattern : {"h2o_blocks:block=16,top=2,window=2,tracked=4", "quest:block=16,top=2,first=0"}) {
    SCOPED_TRACE(pattern);
    const auto expected = run(with(pattern, 1, 512));
    EngineOptions drafting = in_file(with(pattern, 2, 64));
    drafting.drafter = "ngram:n=3,min=1,k=5";
    const auto drafted = run(drafting);
    EXPECT_GT(stats_.drafted_tokens, 0);
    for (const auto& [id, shown] : expected) EXPECT_EQ(drafted.at(id).tokens, shown.tokens) << id;
  }
}

TEST_P(StreamedPatterns, ReadWhatQueriesChoose) {
  run(in_file(with("", 1, 512)));
  const KeyStreamStats all = stats_.key_stream;
  for (const char* pattern :
       {"quest:block=16,top=2,first=0", "impress:block=16,top=2,first=0",
        "h2o_blocks:block=16,top=2,window=2,tracked=4", "h2o_blocks:block=16,top=2,window=2,phase=decode"}) {
    run(in_file(with(pattern, 1, 512)));
    EXPECT_GT(stats_.key_stream.read_bytes, 0) << pattern;
    EXPECT_LT(stats_.key_stream.read_bytes, all.read_bytes * 3 / 4) << pattern;
  }
}

// Layers take turns in the same memory if a model has three or more.
INSTANTIATE_TEST_SUITE_P(Models, StreamedPatterns, ::testing::Values("smollm3", "deepseek2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
