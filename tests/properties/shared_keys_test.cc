// Layers that read the keys and values of earlier layers (LayerSpec::kv_from), with inputs of their own: what such a
// model's engine does with the same bits, and what it refuses by name.
#include <gtest/gtest.h>

#include "properties/draft_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kSharedKeysAnswer = 10;

class SharedKeys : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 128});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *loaded;
    vocab_ = model_->info().vocab;
  }
  Shown run_one(const EngineOptions& o) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, make_request(5, 70, kSharedKeysAnswer, vocab_)).ok());
    return run_all(*core, vocab_)[1];
  }
  std::string refusal(const EngineOptions& o) const {
    const auto core = EngineCore::create(model_, o);
    return core.ok() ? "" : core.error().message;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_P(SharedKeys, DraftsAndPreemptionsKeepTheBits) {
  ASSERT_TRUE(model_);
  const Shown plain = run_one(options());
  ASSERT_EQ(std::ssize(plain.tokens), kSharedKeysAnswer);
  EngineOptions drafting = options(2, 100);
  drafting.drafter = "ngram:n=3,min=1,k=5";
  // The answer itself is drafted, with mistakes: whether it repeats itself depends on the instruction set.
  const Truth truth = {{1, plain.tokens}};
  for (const double wrong : {0.0, 0.3}) {
    auto drafts = core_with(model_, drafting, scripted_drafter(truth, 5, wrong));
    ASSERT_TRUE(drafts);
    ASSERT_TRUE(drafts->add(1, make_request(5, 70, kSharedKeysAnswer, vocab_)).ok());
    EXPECT_EQ(run_all(*drafts, vocab_)[1].tokens, plain.tokens);
    EXPECT_GT(drafts->stats().accepted_tokens, 0);
    EXPECT_EQ(drafts->stats().accepted_tokens == drafts->stats().drafted_tokens, wrong == 0);
  }
  // Two tokens may be answered, so that n-grams of the prompt and of the answer repeat.
  Request repeats = make_request(5, 70, kSharedKeysAnswer, vocab_);
  repeats.sampling.allowed_tokens = {repeats.prompt[3], repeats.prompt[4]};
  auto undrafted = make_core(model_, options());
  ASSERT_TRUE(undrafted->add(1, repeats).ok());
  auto drafts = make_core(model_, drafting);
  ASSERT_TRUE(drafts->add(1, repeats).ok());
  EXPECT_EQ(run_all(*drafts, vocab_)[1].tokens, run_all(*undrafted, vocab_)[1].tokens);
  EXPECT_GT(drafts->stats().drafted_tokens, 0);
  for (const int64_t swapped : {0, 640}) {
    EngineOptions narrow = options(2, 100);
    narrow.kv_tokens = 144;
    narrow.policy = "fcfs:reserve=prompt";
    narrow.kv_tier = memory_tier(swapped);
    auto core = make_core(model_, narrow);
    for (RequestId id = 1; id <= 2; ++id)
      ASSERT_TRUE(core->add(id, make_request(4 + static_cast<int64_t>(id), 60, 20, vocab_)).ok());
    const auto together = run_all(*core, vocab_);
    EXPECT_GT(core->stats().preemptions, 0) << swapped;
    for (RequestId id = 1; id <= 2; ++id) {
      auto alone = make_core(model_, options());
      ASSERT_TRUE(alone->add(id, make_request(4 + static_cast<int64_t>(id), 60, 20, vocab_)).ok());
      EXPECT_TRUE(run_all(*alone, vocab_)[id].same_bits(together.at(id))) << id << ", " << swapped;
    }
  }
}

TEST_P(SharedKeys, FormatsOfRowsEvictorsAndStaticPatternsRun) {
  ASSERT_TRUE(model_);
  const Shown plain = run_one(options());
  EngineOptions other = options();
  other.kv_format = "bf16";
  EXPECT_EQ(std::ssize(run_one(other).tokens), kSharedKeysAnswer);
  EngineOptions evicting = options();
  evicting.evictor = "streamingllm:sinks=2,window=30";
  const Shown evicted = run_one(evicting);
  EXPECT_FALSE(evicted.same_bits(plain));
  EngineOptions chunks = options(2, 7);
  chunks.evictor = evicting.evictor;
  EXPECT_TRUE(run_one(chunks).same_bits(evicted));
  EngineOptions pattern = options(2, 512);
  pattern.kernels = {"attention=bigbird:block=16,window=1,global=0,random=1"};
  const Shown sparse = run_one(pattern);
  EXPECT_FALSE(sparse.same_bits(plain));
  pattern.batch_tokens = 7;
  EXPECT_TRUE(run_one(pattern).same_bits(sparse));
}

TEST_P(SharedKeys, WhatReadsTheKeysOfEveryLayerIsRefused) {
  ASSERT_TRUE(model_);
  EngineOptions o = options();
  o.kv_format = "kivi";
  EXPECT_EQ(refusal(o),
            "KV format kivi does not go with this model: some of its layers read the keys of others, whose newest rows "
            "are not encoded yet; use f16 or another format of rows");
  o = options();
  o.evictor = "h2o:budget=16";
  EXPECT_EQ(
      refusal(o),
      "evictor h2o:budget=16 does not go with this model: some layers of the model read the keys of other layers, and "
      "it counts only the queries of the layers that store them; use streamingllm or window");
  o = options();
  o.prefix_evict = "importance";
  EXPECT_NE(refusal(o).find("does not go with this model"), std::string::npos) << refusal(o);

  auto core = make_core(model_, options());
  Request rows = make_request(1, 8, 4, vocab_);
  const std::vector<float> row(static_cast<size_t>(model_->parts().model->spec().width), 0.1f);
  rows.embeddings = {{0, std::make_shared<const std::vector<float>>(row)}};
  const auto refused = core->add(1, rows);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("its layers find their inputs by the token"), std::string::npos)
      << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(Models, SharedKeys, ::testing::Values("gemma4_e", "gemma3n"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace millrace
