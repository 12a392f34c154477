// Same request, same bits: a stream's tokens and logits do not depend on threads, batch mates, prefill chunks, prefix
// reuse or the KV block size. Compared bit for bit, on every kernel table that this machine has.
#include <gtest/gtest.h>

#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

struct Case {
  std::string model;
  std::string kv_format;
  Isa isa;
};

class Bits : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), GetParam().isa);
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    alone_ = run_one(with_format(options()), request(1));
    ASSERT_EQ(alone_.tokens.size(), 12u);
  }
  EngineOptions with_format(EngineOptions o) const {
    o.kv_format = GetParam().kv_format;
    return o;
  }
  Request request(int64_t seed, int64_t prompt = 70) const { return make_request(seed, prompt, 12, vocab_); }
  Shown run_one(const EngineOptions& o, Request r) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, std::move(r)).ok());
    return run_all(*core, vocab_)[1];
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  Shown alone_;
};

TEST_P(Bits, DoNotDependOnThreads) {
  for (int threads : {2, 3})
    EXPECT_TRUE(run_one(with_format(options(threads)), request(1)).same_bits(alone_)) << threads;
}

TEST_P(Bits, DoNotDependOnPrefillChunks) {
  for (int64_t chunk : {1, 7, 64}) {
    EngineOptions o = with_format(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_)) << chunk;
  }
}

TEST_P(Bits, DoNotDependOnBlockSize) {
  for (int64_t block : {1, 8, 64})
    EXPECT_TRUE(run_one(with_format(options(2, 512, block)), request(1)).same_bits(alone_)) << block;
}

TEST_P(Bits, DoNotDependOnBatchMates) {
  for (int64_t mates = 1; mates <= 7; mates += 2) {
    auto core = make_core(model_, with_format(options(2, 48)));
    // Half of the mates before, half after, of many lengths; prompts run in chunks while the others decode.
    for (int64_t i = 0; i < mates; ++i) {
      if (i == mates / 2) {
        ASSERT_TRUE(core->add(1, request(1)).ok());
      }
      ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), request(50 + i, 3 + 14 * i)).ok());
    }
    EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone_)) << mates;
  }
}

TEST_P(Bits, DoNotDependOnPrefixReuse) {
  auto core = make_core(model_, with_format(options()));
  ASSERT_TRUE(core->add(1, request(1)).ok());
  EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone_));
  ASSERT_TRUE(core->add(2, request(1)).ok());
  Shown again = run_all(*core, vocab_)[2];
  EXPECT_EQ(again.cached, 64);  // four whole blocks of 70 tokens
  EXPECT_TRUE(again.same_bits(alone_));
  // A prompt that shares only the first 40 tokens.
  Request other = request(1);
  for (size_t i = 40; i < other.prompt.size(); ++i)
    other.prompt[i] = static_cast<TokenId>((other.prompt[i] + 1) % vocab_);
  ASSERT_TRUE(core->add(3, other).ok());
  Shown shared = run_all(*core, vocab_)[3];
  EXPECT_EQ(shared.cached, 32);
  other.cache_prompt = false;
  EXPECT_TRUE(shared.same_bits(run_one(with_format(options()), other)));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (Isa isa : isa_levels()) {
    for (const char* model :
         {"llama3", "gemma2", "gemma3", "qwen3moe", "smollm3", "olmo2", "gpt_oss", "gemma4_e", "gemma4_moe", "gemma3n"})
      out.push_back({model, "f16", isa});
    for (const char* kv : {"f32", "bf16"}) out.push_back({"llama3", kv, isa});
    for (const char* kv : {"f16", "bf16"}) out.push_back({"deepseek2_groups", kv, isa});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Bits, ::testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.model + "_" + test.param.kv_format + "_" + isa_label(test.param.isa);
});

}  // namespace
}  // namespace millrace
