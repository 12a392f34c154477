#include "workload/request.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

WorkloadRequest hashed(uint64_t id, int64_t tokens, std::vector<uint64_t> hashes, int64_t block) {
  WorkloadRequest request;
  request.id = id;
  request.prompt_tokens = tokens;
  request.prefix_hashes = std::move(hashes);
  request.hash_block_tokens = block;
  return request;
}

int64_t common_tokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

TEST(MakePrompt, EqualHashesGiveEqualTokensAndOthersDoNot) {
  const auto a = make_prompt(hashed(1, 40, {7, 8, 9}, 16), 32000);
  const auto b = make_prompt(hashed(2, 48, {7, 8, 10}, 16), 32000);
  ASSERT_EQ(a.size(), 40u);
  ASSERT_EQ(b.size(), 48u);
  EXPECT_EQ(common_tokens(a, b), 32);
  EXPECT_EQ(a, make_prompt(hashed(5, 40, {7, 8, 9}, 16), 32000));  // hashes cover the whole prompt
}

TEST(MakePrompt, PartialBlockIsAPrefixOfTheFullOne) {
  const auto part = make_prompt(hashed(1, 20, {7, 8}, 16), 1000);
  const auto full = make_prompt(hashed(2, 32, {7, 8}, 16), 1000);
  EXPECT_EQ(common_tokens(part, full), 20);
}

TEST(MakePrompt, TokensWithoutAHashAreUnique) {
  const auto a = make_prompt(hashed(1, 64, {7}, 16), 1 << 20);
  const auto b = make_prompt(hashed(2, 64, {7}, 16), 1 << 20);
  EXPECT_EQ(common_tokens(a, b), 16);
  EXPECT_EQ(common_tokens(make_prompt(hashed(1, 9, {}, 0), 1 << 20), make_prompt(hashed(2, 9, {}, 0), 1 << 20)), 0);
}

TEST(MakePrompt, StaysInsideTheVocabulary) {
  WorkloadRequest request;
  request.prompt_tokens = 4;
  request.tokens = {0, 150000, 7, 99};
  EXPECT_EQ(make_prompt(request, 100), (std::vector<TokenId>{0, 0, 7, 99}));
  for (TokenId token : make_prompt(hashed(1, 500, {1, 2}, 100), 3)) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 3);
  }
}

}  // namespace
}  // namespace millrace
