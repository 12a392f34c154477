// What gates know of stored tokens, and the decisions of evictors whose tokens gates choose.
#include "kv/gated_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kv/token_eviction.h"

namespace millrace {
namespace {

std::shared_ptr<const EvictionRule> gate_rule(const std::string& text) {
  auto rule = make_eviction_rule(text);
  EXPECT_TRUE(rule.ok()) << (rule.ok() ? "" : rule.error().message);
  return rule.ok() ? *rule : nullptr;
}

std::vector<int32_t> list(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

TEST(GatedTokens, ForgetWhatRejectedTokensEnded) {
  GatedTokens tokens;
  tokens.begin(0, 0, 4, TokenGate::pairs, 2);
  for (int64_t slot = 0; slot < 4; ++slot) *tokens.row(slot) = static_cast<float>(slot);
  tokens.ends()[0] = 2;
  tokens.ends()[1] = 3;
  EXPECT_EQ(list(tokens.staying()), (std::vector<int32_t>{2, 3}));
  tokens.begin(3, 3, 2, TokenGate::pairs, 2);  // token 3 was rejected, and two others follow
  EXPECT_EQ(list(tokens.ends()), (std::vector<int32_t>{2, GatedTokens::kStays, GatedTokens::kStays, GatedTokens::kStays,
                                                       GatedTokens::kStays}));
  tokens.keep_staying();
  EXPECT_EQ(tokens.ends().size(), 4u);
  EXPECT_EQ(*tokens.row(0), 1);
  EXPECT_EQ(*tokens.row(1), 2);
}

TEST(GatedTokens, OfASelectionHaveWeights) {
  GatedTokens tokens;
  tokens.begin(0, 0, 3, TokenGate::selection, 0);
  tokens.weights()[1] = 0.25f;
  tokens.ends()[0] = 0;
  tokens.keep_staying();
  EXPECT_EQ(tokens.weights().size(), 2u);
  EXPECT_EQ(tokens.weights()[0], 0.25f);
  tokens.clear();
  EXPECT_TRUE(tokens.ends().empty());
}

TEST(GatedEviction, GivesBackAfterTheSlack) {
  TokenEviction eviction(gate_rule("adaptively_sparse:slack=4,prompt=evicted"), 10, 40, 4, 2);
  EXPECT_EQ(eviction.next(), 4);
  EXPECT_EQ(TokenEviction(gate_rule("adaptively_sparse:slack=4"), 10, 40, 4, 2).next(), 10);
  EXPECT_EQ(eviction.most_stored(0), 40);
  for (int64_t layer = 0; layer < 2; ++layer) eviction.gated(layer).begin(0, 0, 4, TokenGate::pairs, 1);
  eviction.gated(1).ends()[2] = 3;
  eviction.decide();
  EXPECT_EQ(list(eviction.tokens(0).kept()), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(list(eviction.tokens(1).kept()), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(list(eviction.positions(1)), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(eviction.next(), 8);
  EXPECT_EQ(eviction.evicted(1), 1);
  EXPECT_EQ(eviction.most_stored(1), 39);  // whatever comes may stay
  EXPECT_EQ(eviction.mean_evicted(), 1);
  eviction.start_again();
  EXPECT_EQ(eviction.evicted(1), 0);
  EXPECT_TRUE(eviction.gated(1).ends().empty());
}

TEST(GatedEviction, OnlyAWindowBoundsWhatIsStored) {
  EXPECT_EQ(kv_demand(gate_rule("adaptively_sparse").get(), 100, 500, 3), 500);
  EXPECT_EQ(kv_demand(gate_rule("seqboat").get(), 100, 500, 3), 500);
  EXPECT_EQ(kv_demand(gate_rule("seqboat:window=20,slack=5,prompt=evicted").get(), 100, 500, 3), 26);
  EXPECT_EQ(kv_demand(gate_rule("seqboat:window=20,slack=5").get(), 100, 500, 3), 100);
  EXPECT_EQ(make_eviction_rule("seqboat:scope=layer").error().message,
            "evictor seqboat: scope: no such option; known: window, slack, prompt");
}

}  // namespace
}  // namespace millrace
