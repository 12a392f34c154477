// Limits of a pool, checked before it allocates memory, and how many block ids a contiguous pool has.
#include <gtest/gtest.h>

#include "kv/pool.h"

namespace millrace {
namespace {

std::string refused(const KvLayout& layout, int64_t blocks, const KvPoolOptions& options = {}) {
  const auto pool = KvPool::create(layout, blocks, options);
  return pool.ok() ? "" : pool.error().message;
}

KvLayout small(int64_t block_tokens = 4, int64_t heads = 1, int64_t dim = 32) {
  return {find_format("f16"), block_tokens, {{heads, dim}}};
}

TEST(KvPoolLimits, InvalidLayouts) {
  EXPECT_EQ(refused(small(), 1), "");
  EXPECT_EQ(refused(small(), 0), "KV cache: needs at least one block, got 0");
  EXPECT_EQ(refused(small(1), 1), "");
  EXPECT_EQ(refused(small(kMaxBlockTokens), 1), "");
  for (int64_t tokens : {int64_t{0}, kMaxBlockTokens + 1})
    EXPECT_EQ(refused(small(tokens), 1).find("KV block size: must be between 1 and 65536"), 0u);
  EXPECT_EQ(small(1, 1 << 20, 1 << 20).check().ok(), true) << "the maximum of both";
  for (auto [heads, dim] : {std::pair{0, 32}, {1, 0}, {-1, 32}, {1, -32}, {(1 << 20) + 1, 32}, {1, (1 << 20) + 1}})
    EXPECT_EQ(refused(small(4, heads, dim), 1).find("KV cache: layer 0 has"), 0u) << heads << " " << dim;
  EXPECT_EQ((KvLayout{nullptr, 4, {{1, 32}}}.check().error().kind), ErrorKind::internal);
  EXPECT_EQ(refused({find_format("q8_0"), 4, {{1, 32}, {1, 33}}}, 1)
                .find("KV format q8_0: needs a head size that is a multiple of 32, the model has 33"),
            0u);
}

TEST(KvPoolLimits, BlockCounts) {
  EXPECT_EQ(refused(small(), int64_t{INT32_MAX} + 1).find("KV cache: 2147483648 blocks are more than can be addressed"),
            0u);
  const KvLayout huge{find_format("f16"), kMaxBlockTokens, {{1 << 14, 1 << 14}}};  // 2^46 bytes per block
  ASSERT_EQ(huge.block_bytes(), int64_t{1} << 46);
  EXPECT_EQ(refused(huge, int64_t{1} << 17).find("KV cache: 131072 blocks of"), 0u);
  EXPECT_NE(refused(huge, int64_t{1} << 17).find("do not fit"), std::string::npos);
  EXPECT_EQ(refused(huge, (int64_t{1} << 17) - 1).find("KV cache: 131071 blocks"), std::string::npos)
      << "a valid count, but more memory than exists";
  EXPECT_NE(refused(huge, (int64_t{1} << 17) - 1), "");
}

// Each address check separately: too many small blocks, and few blocks that are too large.
TEST(KvPoolLimits, AddressRanges) {
  const KvPoolOptions options{KvPoolMode::virtual_ranges, 64, 2};
  const KvLayout page = small(64);  // 8 KiB per block
  const int64_t many = INT32_MAX / 2 + 2;
  ASSERT_GT(kv_pool_ids(page, many, options), INT32_MAX);
  ASSERT_LT(kv_pool_ids(page, many, options), (int64_t{1} << 45) / page.block_bytes());
  EXPECT_NE(refused(page, many, options).find("are more addresses than a process has"), std::string::npos);
  const KvLayout wide{find_format("f16"), 4096, {{1 << 10, 1 << 12}}};  // 64 GiB per block
  ASSERT_EQ(wide.block_bytes(), int64_t{1} << 36);
  const KvPoolOptions few{KvPoolMode::virtual_ranges, 4096, 2};
  ASSERT_GT(kv_pool_ids(wide, 1000, few), (int64_t{1} << 45) >> 36);
  EXPECT_NE(refused(wide, 1000, few).find("are more addresses than a process has"), std::string::npos);
}

TEST(KvPoolLimits, RangeHoldsTheLongestStream) {
  const KvLayout page = small(64);
  const auto ids = [&](int64_t blocks, int64_t longest, int64_t streams) {
    return kv_pool_ids(page, blocks, {KvPoolMode::virtual_ranges, longest, streams});
  };
  // A range for each block that may outlive its stream, one for each stream, and one more.
  EXPECT_EQ(ids(10, 65, 2), 2 * 13);
  EXPECT_EQ(ids(10, 128, 2), 2 * 13);
  EXPECT_EQ(ids(10, 640, 2), 10 * 13);
  // At least twice the blocks, and at least two ranges per stream, however large.
  EXPECT_EQ(ids(10, 64, 2), 20);
  EXPECT_EQ(ids(10, 0, 2), 20) << "no stream: ranges of one block";
  EXPECT_EQ(ids(10, 64, 8), 20);
  EXPECT_EQ(ids(2, 64, 8), 18);
  EXPECT_EQ(ids(2, 640, 8), 180);
  EXPECT_EQ(ids(int64_t{1} << 20, 64, 2), int64_t{1} << 21);
  EXPECT_EQ(ids(1000, int64_t{64} << 20, 2), (int64_t{1} << 20) * 6) << "there are few long ranges";
  EXPECT_EQ(ids(1000, int64_t{64} << 14, 2), (int64_t{1} << 14) * 64);
}

TEST(KvPoolLimits, BlocksOfTokensAndTheirBytes) {
  auto pool = KvPool::create({find_format("f16"), 4, {{2, 32}, {1, 64}}}, 3);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->layout().block_bytes(), 2 * 4 * (2 * 64 + 128));
  EXPECT_EQ(pool->layout().bytes_per_token(), 2 * (2 * 64 + 128));
  EXPECT_EQ(pool->bytes(), 3 * pool->layout().block_bytes());
  for (auto [tokens, blocks] : {std::pair{0, 0}, {1, 1}, {4, 1}, {5, 2}, {8, 2}})
    EXPECT_EQ(pool->blocks_for(tokens), blocks);
  EXPECT_EQ(pool->ids(), 3);
  EXPECT_EQ(pool->committed_blocks(), 3);
  EXPECT_FALSE(pool->huge_pages());
  for (BlockId expected : {0, 1, 2}) EXPECT_EQ(*pool->allocate(), expected);
  pool->release(1);
  EXPECT_EQ(*pool->allocate(), 1) << "the block released last is allocated first";
  EXPECT_EQ(find_kv_pool_mode("paged").value(), KvPoolMode::paged);
  EXPECT_EQ(find_kv_pool_mode("virtual").value(), KvPoolMode::virtual_ranges);
  EXPECT_NE(find_kv_pool_mode("x").error().message.find("got 'x'"), std::string::npos);
}

TEST(KvPoolLimits, BlocksAreRoundedUpToWholePages) {
  for (auto [block, dim, expected] : {std::tuple{3, 2048, 3}, {3, 1024, 4}, {4, 1024, 4}, {1, 4096, 1}, {5, 32, 64}})
    EXPECT_EQ((KvLayout{find_format("f16"), block, {{1, dim}}}.page_block_tokens(4096)), expected) << dim;
}

TEST(KvLayouts, HaveRestsIfAGroupHas) {
  KvLayout layout = small();
  EXPECT_FALSE(layout.has_residuals());
  EXPECT_EQ(layout.format_name(), "f16");
  layout.residual_below = 0.25;
  EXPECT_TRUE(layout.has_residuals());
  EXPECT_EQ(layout.format_name(), "progressive:below=0.25,format=f16");
  EXPECT_EQ(layout.block_bytes(), 2 * small().block_bytes());
  KvLayout groups = small();
  groups.windows = {small()};
  EXPECT_FALSE(groups.has_residuals());
  groups.windows[0].residual_below = 0.25;
  EXPECT_TRUE(groups.has_residuals());
  EXPECT_FALSE(groups.stores_residuals(groups.layers[0])) << "only the other group's rows have them";
}

TEST(KvLayouts, HeadsApartAreLayersOfOneHead) {
  KvLayout layout{find_format("f16"), 4, {{3, 32}, {3, 32}}};
  ASSERT_TRUE(layout.use_per_head_tables().ok());
  EXPECT_TRUE(layout.divided());
  EXPECT_EQ(layout.tables_per_layer(), 3);
  EXPECT_EQ(layout.tables(), 6);
  EXPECT_EQ(layout.heads(), 6);
  for (const KvLayer& layer : layout.layers) {
    EXPECT_EQ(layer.kv_heads, 1);
    EXPECT_EQ(layer.head_dim, 32);
  }
  EXPECT_EQ(layout.block_bytes(), 2 * 4 * 32 * 2) << "of one head of one layer";
  EXPECT_TRUE(layout.check().ok());
  layout.layers.pop_back();
  EXPECT_EQ(layout.check().error().message, "KV cache: a layer without some of its heads");

  KvLayout unequal{find_format("f16"), 4, {{3, 32}, {2, 32}}};
  EXPECT_EQ(unequal.use_per_head_tables().error().kind, ErrorKind::unsupported);
  EXPECT_FALSE(unequal.divided()) << "an error changes nothing";
  KvLayout none{find_format("f16"), 4, {}};
  ASSERT_TRUE(none.use_per_head_tables().ok());
  EXPECT_EQ(none.tables_per_layer(), 1);
}

TEST(KvPoolLimits, InconsistentCountsAreReported) {
  auto pool = KvPool::create(small(), 3);
  const BlockId block = *pool->allocate();
  EXPECT_TRUE(pool->check().ok());
  pool->share(2);  // a block that was never allocated
  ASSERT_FALSE(pool->check().ok());
  EXPECT_EQ(pool->check().error().message, "KV blocks: 2 held + 2 free != 3");
  (void)block;
}

}  // namespace
}  // namespace millrace
