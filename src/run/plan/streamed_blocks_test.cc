#include "run/plan/streamed_blocks.h"

#include <gtest/gtest.h>

#include "contains.h"
#include "kv/tiers/layer_file.h"

namespace millrace {
namespace {

// A tile of 16 tokens is 4 KiB; a block has 8 KiB in each layer.
KvLayout ten_layers() {
  KvLayout layout{.format = find_format("f32"), .block_tokens = 16};
  for (int64_t i = 0; i < 10; ++i) layout.layers.push_back({.kv_heads = 1, .head_dim = 64});
  return layout;
}

struct PlannedStream {
  int64_t blocks = 0, resident = 0, swap = 0;
  std::string error = {};
};

PlannedStream plan_stream(int64_t memory, int64_t budget, const StreamedTokens& tokens) {
  const auto accounts = std::make_shared<MemoryAccounts>(budget);
  EngineMemory other{.activations = 1'000'000};
  KvPoolOptions places;
  const auto blocks =
      plan_streamed_blocks(ten_layers(), {.folder = "/", .memory = memory}, *accounts, tokens, other, places);
  if (!blocks.ok()) return {.error = blocks.error().message};
  return {*blocks, places.resident, other.swap};
}

TEST(StreamedBlocks, ModelsWithoutKeysAreRefused) {
  EngineMemory other;
  KvPoolOptions places;
  const auto blocks =
      plan_streamed_blocks({.format = find_format("f32"), .block_tokens = 16}, {.folder = "/", .memory = 1 << 20},
                           *std::make_shared<MemoryAccounts>(0), {100, 100}, other, places);
  ASSERT_FALSE(blocks.ok());
  EXPECT_EQ(blocks.error().kind, ErrorKind::unsupported);
}

TEST(StreamedBlocks, TheMostBlocksThatFitAreResident) {
  const KvLayout layout = ten_layers();
  const int64_t buffers = LayerFile::memory(layout, 1000, 0);
  for (const int64_t memory : {24'000'000, 30'000'000, 60'000'000}) {
    const PlannedStream plan = plan_stream(memory, 0, {16'000, 8'000});
    EXPECT_EQ(plan.blocks, 1000);
    ASSERT_LT(plan.resident, 1000);
    EXPECT_EQ(plan.swap, LayerFile::memory(layout, 1000, plan.resident));
    const auto cost = [&](int64_t resident) {
      return staged_bytes(layout, 1000, resident) + LayerFile::memory(layout, 1000, resident);
    };
    EXPECT_LE(cost(plan.resident), memory);
    EXPECT_GT(cost(plan.resident + 2), memory) << "more would fit";
  }
  EXPECT_GT(buffers, 2 << 20);
  const PlannedStream all = plan_stream(200'000'000, 0, {16'000, 8'000});
  EXPECT_EQ(all.blocks, 1000);
  EXPECT_EQ(all.resident, kAllResident);
  EXPECT_EQ(all.swap, 0);
}

TEST(StreamedBlocks, ABudgetLimitsThemToo) {
  const PlannedStream by_option = plan_stream(30'000'000, 500'000'000, {16'000, 8'000});
  const PlannedStream by_budget = plan_stream(400'000'000, 31'000'000, {16'000, 8'000});
  EXPECT_EQ(by_option.resident, by_budget.resident);
  EXPECT_EQ(plan_stream(0, 31'000'000, {16'000, 8'000}).resident, by_budget.resident);
}

TEST(StreamedBlocks, ADefaultIsReducedToWhatStreamsNeed) {
  EXPECT_EQ(plan_stream(20'000'000, 0, {32'000, 8'000}).blocks, 500);
  EXPECT_EQ(plan_stream(40'000'000, 0, {32'000, 8'000}).blocks, 2000);
  const PlannedStream refused = plan_stream(8'000'000, 0, {32'000, 8'000});
  EXPECT_CONTAINS(refused.error, "KV tier disk: 8000 tokens need ");
  EXPECT_CONTAINS(refused.error, "and 8.0 MB is left; raise memory= or --memory");
  EXPECT_CONTAINS(plan_stream(0, 0, {16, 16}).error, "how much memory may keys take?");
}

}  // namespace
}  // namespace millrace
