// Steps with an attention pattern: as many pairs as the pattern keeps, whatever the chunks, and all with all blocks.
#include "run/plan/pattern_steps.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr int64_t kContext = 1000;

// A key and a value of 32 dims in f32.
PatternSteps::Model model_of(int64_t layers, int64_t heads) {
  return {.layers = layers, .kv_heads = heads, .head_dim = 32, .token_bytes = 256};
}

std::unique_ptr<PatternSteps> steps_of(const std::string& text, int64_t layers = 1, int64_t heads = 1) {
  auto steps = PatternSteps::create(*make_attention_pattern(text), model_of(layers, heads), kContext, 16);
  EXPECT_TRUE(steps.ok()) << text << (steps.ok() ? "" : steps.error().message);
  return steps.ok() ? std::move(*steps) : nullptr;
}

TEST(PatternSteps, PairsAreThoseOfThePattern) {
  for (const char* text : {"sparse_transformer", "bigbird:block=32", "longformer:block=32", "full"}) {
    SCOPED_TRACE(text);
    for (const int64_t tokens : {1, 64, 200, 1000}) {
      const double all = static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
      const double wanted = all * pattern_density(**make_attention_pattern(text), 3, 2, tokens);
      for (const int64_t chunk : {1, 17, 64, 1000}) {
        const auto steps = steps_of(text, 3, 2);
        StepShape sum;
        for (int64_t first = 0; first < tokens; first += chunk)
          steps->add(first, std::min(chunk, tokens - first), first + chunk >= tokens, false, sum);
        EXPECT_NEAR(sum.pairs, wanted, 1e-9 * wanted) << tokens << " " << chunk;
        EXPECT_EQ(sum.tokens, tokens);
        EXPECT_EQ(sum.outputs, 1);
      }
    }
  }
}

TEST(PatternSteps, AllBlocksAreAllKeys) {
  const auto steps = steps_of("full");
  for (const int64_t first : {0, 5, 63, 64, 900}) {
    for (const int64_t count : {1, 2, 64, 100}) {
      StepShape plain, pattern;
      plain.add(first, count, 1);
      steps->add(first, count, 1, false, pattern);
      EXPECT_EQ(pattern.keys, plain.keys);
      EXPECT_EQ(pattern.pairs, plain.pairs);
    }
  }
}

// The first block, the block before and its own.
TEST(PatternSteps, ADecodeReadsTheKeysThatItSees) {
  StepShape shape;
  steps_of("longformer:window=2,global=1")->add(640, 1, 1, false, shape);
  EXPECT_EQ(shape.keys, 64 + 64 + 1);
  EXPECT_EQ(shape.pairs, 64 + 64 + 1);
}

// Of ten earlier blocks the first, and three that it chooses by summaries of as many bytes as a key and a value; and
// its own.
TEST(PatternSteps, ADynamicPatternReadsWhatItChoosesAndTheSummaries) {
  StepShape shape;
  const auto steps = steps_of("quest:block=64,top=3,sinks=1,window=1,first=0");
  ASSERT_TRUE(steps);
  EXPECT_TRUE(steps->stores_rows());
  steps->add(640, 1, 1, false, shape);
  EXPECT_EQ(shape.keys, 4 * 64 + 1 + 10);
  EXPECT_EQ(shape.pairs, 4 * 64 + 1 + 10);
}

TEST(PatternSteps, TheOtherPhaseReadsAllKeys) {
  const auto steps = steps_of("longformer:window=2,global=1,phase=prompt");
  EXPECT_TRUE(steps->has_phase());
  StepShape prompt, answer, plain;
  steps->add(640, 1, 1, false, prompt);
  steps->add(640, 1, 1, true, answer);
  plain.add(640, 1, 1);
  EXPECT_EQ(prompt.keys, 64 + 64 + 1);
  EXPECT_EQ(answer.keys, plain.keys);
}

TEST(PatternSteps, Refusals) {
  const auto message = [](const char* text) {
    return PatternSteps::create(*make_attention_pattern(text), model_of(1, 1), kContext, 16).error().message;
  };
  EXPECT_EQ(message("longformer:block=24"),
            "attention longformer:block=24: block: must be a multiple of the 16 tokens of a KV block, is 24");
}

}  // namespace
}  // namespace millrace
