// Blocks with equal hashes and different tokens, constructed for XXH3: in the long form each 64-bit word of the input
// is added to its neighbour's sum, and the product of its two halves, each xored with the secret, to its own sum. A
// word whose lower half equals the secret's adds nothing to its own sum, so the upper halves of two such words in one
// column can be exchanged.
#include <gtest/gtest.h>

#include "kv/prefix_index.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 64;                                       // 256 bytes: the long form starts at 241
constexpr TokenId kSecretAt0 = 0x396cfeb8, kSecretAt8 = 0x2c81017c;  // XXH3's secret, bytes 0..3 and 8..11

std::vector<TokenId> colliding(TokenId first, TokenId second) {
  std::vector<TokenId> tokens(kBlock, 5);
  tokens[0] = kSecretAt0, tokens[1] = first;     // the first 64-byte stripe
  tokens[16] = kSecretAt8, tokens[17] = second;  // the next stripe, whose secret starts 8 bytes later
  return tokens;
}

class Collision : public ::testing::Test {
 protected:
  std::vector<BlockId> store(const std::vector<TokenId>& tokens, uint64_t tenant = 0) {
    std::vector<BlockId> blocks;
    for (size_t i = 0; i < tokens.size() / kBlock; ++i) blocks.push_back(*pool_.allocate());
    index_.insert(tokens, blocks, tenant);
    for (BlockId block : blocks) pool_.release(block);
    return blocks;
  }
  std::vector<BlockId> match(const std::vector<TokenId>& tokens, uint64_t tenant = 0) {
    auto blocks = index_.match(tokens, tenant);
    for (BlockId block : blocks) pool_.release(block);
    return blocks;
  }

  KvPool pool_ = *KvPool::create({find_format("f16"), kBlock, {{1, 32}}}, 16);
  PrefixIndex index_{pool_, 1};
  const std::vector<TokenId> a_ = colliding(10, 20), b_ = colliding(20, 10);
};

TEST_F(Collision, BlocksShareAKey) {
  ASSERT_NE(a_, b_);
  EXPECT_EQ(next_key(root_key(0, 1), a_), next_key(root_key(0, 1), b_));
}

TEST_F(Collision, IsAMiss) {
  const auto blocks = store(a_);
  EXPECT_EQ(match(a_), blocks);
  EXPECT_TRUE(match(b_).empty());
  EXPECT_EQ(index_.known_blocks(b_), 0);
}

// A colliding block is not stored: the other chain stays intact, and none of the new chain is attached to it.
TEST_F(Collision, DoesNotAffectTheOtherChain) {
  std::vector<TokenId> first = a_, second = b_;
  first.resize(2 * kBlock, 1);
  second.resize(2 * kBlock, 1);  // followed by a block with the same key, too
  const auto blocks = store(first);
  store(second);
  EXPECT_EQ(index_.size(), 2);
  EXPECT_EQ(pool_.free_blocks(), 14);
  EXPECT_EQ(match(first), blocks);
  EXPECT_TRUE(match(second).empty());
  EXPECT_EQ(index_.evict(2), 2);
  EXPECT_EQ(pool_.free_blocks(), 16);
  EXPECT_EQ(store(second).size(), 2u);  // now its key is free
  EXPECT_EQ(match(second).size(), 2u);
  EXPECT_TRUE(match(first).empty());
}

TEST_F(Collision, InTheMiddleEndsTheMatch) {
  std::vector<TokenId> first(kBlock, 9), second;
  second = first;
  first.insert(first.end(), a_.begin(), a_.end());
  second.insert(second.end(), b_.begin(), b_.end());
  const auto blocks = store(first);
  EXPECT_EQ(match(second), std::vector<BlockId>{blocks[0]});
  EXPECT_EQ(index_.known_blocks(second), 1);
}

TEST_F(Collision, DoesNotCrossTenants) {
  store(a_, 3);
  for (uint64_t tenant : {0, 1, 2, 4}) {
    EXPECT_TRUE(match(a_, tenant).empty());
    EXPECT_TRUE(match(b_, tenant).empty());
  }
  EXPECT_EQ(match(a_, 3).size(), 1u);
}

}  // namespace
}  // namespace millrace
