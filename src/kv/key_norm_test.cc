// The evictor by the norms of keys against plain definitions, and how tokens that are judged by their keys keep what
// they are worth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kv/token_eviction.h"

namespace millrace {
namespace {

std::shared_ptr<const EvictionRule> norm_rule(const std::string& text) {
  auto rule = make_eviction_rule(text);
  EXPECT_TRUE(rule.ok()) << (rule.ok() ? "" : rule.error().message);
  return rule.ok() ? *rule : nullptr;
}

std::string norm_refusal(const std::string& text) {
  const auto rule = make_eviction_rule(text);
  return rule.ok() ? "" : rule.error().message;
}

TEST(KeyNorm, TheWorthOfAKeyFallsWithItsNorm) {
  const auto rule = norm_rule("key_norm");
  const TokenEvictor& evictor = *rule->evictor;
  const auto worth = [&](const std::vector<float>& key) { return evictor.key_worth(key); };
  EXPECT_TRUE(evictor.judges_keys());
  EXPECT_FALSE(evictor.needs_mass()) << "no attention is computed again";
  EXPECT_EQ(worth({0, 0}), 0);
  EXPECT_EQ(worth({3, 4}), -5 * (1 << 20));
  EXPECT_EQ(worth({-4, 3}), worth({3, 4}));
  EXPECT_LT(worth({3, 4.001f}), worth({3, 4}));
  for (const float huge : {1e30f, INFINITY, NAN}) EXPECT_EQ(worth({huge, 1}), -TokenEvictor::kMaxKeyWorth);
}

// Whatever has been dropped before, those with the lowest norms of all are stored, and the newest ones.
TEST(KeyNorm, KeepsTheLowestNormsAndTheNewest) {
  std::mt19937_64 random(3);
  for (const int64_t recent : {0, 3}) {
    TokenEviction eviction(
        norm_rule("key_norm:budget=12,slack=5,prompt=evicted,scope=stream,recent=" + std::to_string(recent)), 1, 1000);
    std::vector<int64_t> worth;
    std::vector<int32_t> kept;
    while (std::ssize(worth) < 300) {
      worth.push_back(-static_cast<int64_t>(random() % 100'000'000));
      kept.push_back(static_cast<int32_t>(std::ssize(worth) - 1));
      eviction.mass(std::ssize(worth) - eviction.evicted()).back() += worth.back();
      if (std::ssize(worth) < eviction.next()) continue;
      eviction.decide();
      const auto newest = kept.end() - recent;
      std::sort(kept.begin(), newest, [&](int32_t a, int32_t b) {
        return std::pair(worth[static_cast<size_t>(a)], a) > std::pair(worth[static_cast<size_t>(b)], b);
      });
      kept.erase(kept.begin() + 12 - recent, newest);
      std::ranges::sort(kept);
      ASSERT_EQ(std::vector<int32_t>(eviction.positions().begin(), eviction.positions().end()), kept);
    }
    EXPECT_GT(eviction.decisions(), 50);
  }
}

// A rejected drafted token leaves nothing, and a kept one what it is worth.
TEST(KeyNorm, CountsKeptDraftsOnly) {
  TokenEviction eviction(norm_rule("key_norm:budget=8,slack=8,scope=stream"), 3, 100);
  std::ranges::copy(std::vector<int64_t>{-1, -2, -3, -4}, eviction.mass(4).begin());
  const auto drafts = eviction.draft_mass(2, 6);
  drafts[4] = -5;
  drafts[6 + 5] = -6;
  eviction.keep_drafted();
  EXPECT_EQ(std::vector<int64_t>(eviction.tokens().mass().begin(), eviction.tokens().mass().end()),
            (std::vector<int64_t>{-1, -2, -3, -4, -5}));
}

TEST(KeyNorm, FirstLayersMayKeepEverything) {
  const auto rule = norm_rule("key_norm:budget=20,slack=4,skip=2,prompt=evicted");
  EXPECT_TRUE(rule->by_layer());
  EXPECT_FALSE(norm_rule("key_norm:budget=20")->by_layer());
  EXPECT_EQ(layer_demand(rule.get(), 50, 300, 1, 5), 300);
  EXPECT_EQ(layer_demand(rule.get(), 50, 300, 2, 5), 24);
  EXPECT_EQ(rule->first_decision(50, 5), 24) << "when the first layer that drops tokens is full";
  EXPECT_TRUE(rule->evictor->check_layers(3, 1).ok());
  EXPECT_EQ(rule->evictor->check_layers(2, 1).error().message,
            "evictor key_norm: skip: must be less than the model's 2 layers, or nothing is dropped, got 2");
  EXPECT_EQ(norm_refusal("key_norm:skip=1,layers=1.2"),
            "evictor key_norm: skip: layers that keep all tokens have no share in the budget; omit skip or layers");
  EXPECT_EQ(norm_refusal("key_norm:skip=1,scope=head"),
            "evictor key_norm: scope: layers with budgets of their own choose for themselves, by positions in the "
            "text; omit it");
}

// Documents that were computed separately are judged once: with the first token behind them, or with the prompt's last
// one.
TEST(KeyNorm, DocumentsAreJudgedOnce) {
  EvictionRule rule = *norm_rule("key_norm:budget=20");
  const auto judged = [&](int64_t joined, int64_t first, int64_t count) {
    rule.joined = joined;
    return TokenEviction(std::make_shared<EvictionRule>(rule), 50, 100).judges_documents(first, count);
  };
  EXPECT_FALSE(judged(0, 0, 50)) << "no documents";
  EXPECT_FALSE(judged(40, 30, 10));
  EXPECT_TRUE(judged(40, 30, 11));
  EXPECT_TRUE(judged(40, 40, 1));
  EXPECT_FALSE(judged(40, 41, 9));
  EXPECT_TRUE(judged(50, 49, 1)) << "nothing is behind them in the prompt";
  EXPECT_FALSE(judged(50, 50, 1));
  rule = *norm_rule("h2o:budget=20");
  EXPECT_FALSE(judged(40, 40, 1)) << "judges no keys";
}

// `recent` means the same in every member that has it.
TEST(RecentTokens, AreANumberOrAShareOfTheBudget) {
  for (const auto& entry : token_evictors().entries()) {
    const auto& options = entry.info.options;
    if (std::ranges::find(options, "recent", &OptionSpec::name) == options.end()) continue;
    SCOPED_TRACE(entry.info.name);
    const bool budget = std::ranges::find(options, "budget", &OptionSpec::name) != options.end();
    const std::string text = entry.info.name + (budget ? ":budget=20,recent=" : ":keep=20,final=20,recent=");
    // Tokens that are worth nothing compared with older ones: the newest are kept for their age alone.
    const auto newest_kept = [&](const std::string& recent) {
      const auto rule = norm_rule(text + recent);
      std::vector<int32_t> positions(40), dropped;
      std::vector<int64_t> sums(40, 0);
      for (size_t i = 0; i < 40; ++i) positions[i] = static_cast<int32_t>(i);
      for (size_t i = 0; i < 20; ++i) sums[i] = 1000;
      StoredTokens stored{.positions = positions};
      (rule->evictor->judges_keys() ? stored.worth : stored.mass) = sums;
      rule->evictor->drop(stored, 20, dropped);
      return int64_t{39} - dropped.back();
    };
    if (entry.info.name == "random") {  // keeps some of the others by chance
      EXPECT_GE(newest_kept("8"), 8);
      EXPECT_GE(newest_kept("40%"), 8);
    } else {
      EXPECT_EQ(newest_kept("8"), 8);
      EXPECT_EQ(newest_kept("40%"), 8);
      EXPECT_EQ(newest_kept("0.4"), 8);
      EXPECT_EQ(newest_kept("0"), 0);
    }
    EXPECT_EQ(newest_kept("100%"), 20);
    const std::string label = "evictor " + entry.info.name + ": recent: ";
    for (const char* wrong : {"-1", "101%", "1.5", "x", "%", "", "1e3", "nan%", "-1%", "inf"})
      EXPECT_EQ(norm_refusal(text + wrong),
                label +
                    "must be a number of tokens from 0 to 1073741824, such as 32, or a share of the budget, such "
                    "as 50% or 0.5, got '" +
                    wrong + "'");
  }
  for (const char* name : {"h2o", "random"})
    EXPECT_EQ(norm_refusal(std::string(name) + ":recent=1"),
              std::string("evictor ") + name +
                  ": recent: 1 is ambiguous: it was all of the budget, and is one token in other evictors; write 100% "
                  "for all of the budget, or at least 2 tokens");
}

}  // namespace
}  // namespace millrace
