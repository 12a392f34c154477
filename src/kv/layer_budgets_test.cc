// Budgets by layer against their definition, and the decisions of layers against plain sets of positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "kv/token_eviction.h"

namespace millrace {
namespace {

std::shared_ptr<const EvictionRule> layer_rule(const std::string& text) {
  auto rule = make_eviction_rule(text);
  EXPECT_TRUE(rule.ok()) << (rule.ok() ? "" : rule.error().message);
  return rule.ok() ? *rule : nullptr;
}

std::string layer_refusal(const std::string& text) {
  const auto rule = make_eviction_rule(text);
  return rule.ok() ? "" : rule.error().message;
}

std::vector<int64_t> layer_budgets(const EvictionRule& rule, int64_t layers) {
  std::vector<int64_t> out;
  for (int64_t layer = 0; layer < layers; ++layer) out.push_back(rule.evictor->budget_of(layer, layers));
  return out;
}

TEST(LayerBudgets, OfPyramidKvFallAndKeepTheirAverage) {
  EXPECT_EQ(layer_budgets(*layer_rule("pyramidkv:budget=60,window=20,beta=4"), 5),
            (std::vector<int64_t>{90, 75, 60, 45, 30}));
  EXPECT_EQ(layer_budgets(*layer_rule("pyramidkv:budget=60,window=20,beta=1"), 3), (std::vector<int64_t>{60, 60, 60}));
  EXPECT_EQ(layer_budgets(*layer_rule("pyramidkv:budget=60,window=20"), 1), (std::vector<int64_t>{60}));
  EXPECT_EQ(layer_budgets(*layer_rule("pyramidkv:budget=8,window=32"), 3), (std::vector<int64_t>{8, 8, 8}));
  for (const int64_t budget : {1, 33, 100, 1023, 4096})
    for (const int64_t beta : {1, 2, 7, 20, 1 << 20})
      for (const int64_t layers : {2, 3, 5, 12, 31, 80}) {
        const auto rule = layer_rule("pyramidkv:budget=" + std::to_string(budget) + ",beta=" + std::to_string(beta));
        const std::vector<int64_t> all = layer_budgets(*rule, layers);
        const int64_t window = std::min<int64_t>(32, budget);
        int64_t sum = 0;
        for (const int64_t one : all) sum += one;
        EXPECT_EQ(sum, budget * layers) << budget << ", " << beta << ", " << layers;
        EXPECT_TRUE(std::ranges::is_sorted(all, std::greater<>()));
        EXPECT_EQ(all.back(), window + (budget - window) / beta);
        for (size_t i = 0; i < all.size(); ++i) {  // on the line, to a token
          const double last = static_cast<double>((budget - window) / beta),
                       above = static_cast<double>(budget - window);
          const double line =
              2 * above - last - 2 * (above - last) * static_cast<double>(i) / static_cast<double>(layers - 1);
          EXPECT_LE(std::abs(static_cast<double>(all[i] - window) - line), 1) << i;
        }
      }
}

TEST(LayerBudgets, OfSpAttenFallFromTheFirstLayerToTheLast) {
  EXPECT_EQ(layer_budgets(*layer_rule("spatten:keep=40,final=10"), 4), (std::vector<int64_t>{40, 30, 20, 10}));
  EXPECT_EQ(layer_budgets(*layer_rule("spatten:keep=40,final=39"), 3), (std::vector<int64_t>{40, 39, 39}));
  EXPECT_EQ(layer_budgets(*layer_rule("spatten:keep=7,final=7"), 3), (std::vector<int64_t>{7, 7, 7}));
  EXPECT_EQ(layer_budgets(*layer_rule("spatten:keep=40,final=10"), 1), (std::vector<int64_t>{40}));
}

// By largest remainders, written out: tokens are given one after the other to the layer that is farthest below its
// part.
TEST(LayerBudgets, OfScissorhandsAreInProportionToTheirShares) {
  EXPECT_EQ(layer_budgets(*layer_rule("scissorhands:budget=50,layers=1.2.3"), 3), (std::vector<int64_t>{30, 50, 70}));
  EXPECT_EQ(layer_budgets(*layer_rule("scissorhands:budget=50,recent=0,layers=1.1"), 2),
            (std::vector<int64_t>{50, 50}));
  EXPECT_EQ(layer_budgets(*layer_rule("scissorhands:budget=1,layers=1.999"), 2), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(layer_budgets(*layer_rule("scissorhands:budget=12,recent=10,layers=1.1000000"), 2),
            (std::vector<int64_t>{10, 14}));
  EXPECT_EQ(layer_rule("scissorhands:budget=50,layers=1.2.3")->evictor->budget(), 50);
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const size_t layers = 1 + random() % 9;
    const auto recent = static_cast<int64_t>(random() % 12), budget = static_cast<int64_t>(1 + random() % 300);
    std::vector<double> shares;
    std::string text;
    double all = 0;
    for (size_t i = 0; i < layers; ++i) {
      const uint64_t share = 1 + random() % (round % 2 ? 20 : 1000000);
      shares.push_back(static_cast<double>(share));
      all += shares.back();
      text += (i > 0 ? "." : "") + std::to_string(share);
    }
    const auto rule = layer_rule("scissorhands:budget=" + std::to_string(budget) + ",recent=" + std::to_string(recent) +
                                 ",layers=" + text);
    const std::vector<int64_t> own = layer_budgets(*rule, static_cast<int64_t>(layers));
    const int64_t least = std::min(std::max<int64_t>(1, recent), budget);
    int64_t sum = 0;
    for (size_t i = 0; i < layers; ++i) {
      sum += own[i];
      const double part = static_cast<double>(budget - least) * static_cast<double>(layers) * shares[i] / all;
      EXPECT_GE(own[i], least);
      EXPECT_LT(std::abs(static_cast<double>(own[i] - least) - part), 1) << text;
    }
    EXPECT_EQ(sum, budget * static_cast<int64_t>(layers)) << text;
  }
}

TEST(LayerBudgets, OfScissorhandsAreOfAsManyLayers) {
  const auto rule = layer_rule("scissorhands:layers=3.4");
  EXPECT_TRUE(rule->by_layer());
  EXPECT_FALSE(layer_rule("scissorhands")->by_layer());
  EXPECT_TRUE(rule->evictor->check_layers(2, 4).ok());
  EXPECT_EQ(rule->evictor->check_layers(3, 4).error().message,
            "evictor scissorhands: layers: has shares of 2 layers, the model has 3; millrace budget-search finds those "
            "of a model");
  const std::string numbers =
      "evictor scissorhands: layers: must be a whole number from 1 to 1000000 for each layer, "
      "with dots between them, got ";
  EXPECT_EQ(layer_refusal("scissorhands:layers=3.0"), numbers + "'0'");
  EXPECT_EQ(layer_refusal("scissorhands:layers=3."), numbers + "''");
  EXPECT_EQ(layer_refusal("scissorhands:layers=1000001"), numbers + "'1000001'");
  EXPECT_EQ(layer_refusal("scissorhands:layers=2.-1"), numbers + "'-1'");
  EXPECT_EQ(layer_refusal("scissorhands:layers=/etc/passwd"), numbers + "'/etc/passwd'");
  EXPECT_EQ(layer_refusal("scissorhands:layers=99999999999999999999"), numbers + "'99999999999999999999'");
  std::string many = "1";
  for (int i = 0; i < 1024; ++i) many += ".1";
  EXPECT_EQ(layer_refusal("scissorhands:layers=" + many),
            "evictor scissorhands: layers: must be of at most 1024 layers, got 1025");
  for (const char* option : {"scope=head", "scope=stream", "positions=cache"})
    EXPECT_EQ(layer_refusal(std::string("scissorhands:layers=1.2,") + option),
              "evictor scissorhands: " + std::string(option).substr(0, std::string(option).find('=')) +
                  ": layers with budgets of their own choose for themselves, by positions in the text; omit it");
}

TEST(LayerBudgets, NamesWhatIsWrong) {
  EXPECT_EQ(layer_refusal("spatten:keep=10,final=11"), "evictor spatten: final: must be at most keep, 10, got 11");
  EXPECT_EQ(layer_refusal("pyramidkv:scope=head"),
            "evictor pyramidkv: scope: no such option; known: budget, window, kernel, beta, slack, prompt");
  EXPECT_EQ(layer_refusal("pyramidkv:beta=0"), "evictor pyramidkv: beta: must be between 1 and 1048576, got 0");
}

TEST(LayerBudgets, DemandIsTheAverageAndTheSumOfBlocks) {
  const auto whole = layer_rule("spatten:keep=40,final=10,slack=4"),
             evicted = layer_rule("spatten:keep=40,final=10,slack=4,prompt=evicted");
  EXPECT_EQ(layer_demand(evicted.get(), 100, 500, 0, 4), 44);
  EXPECT_EQ(layer_demand(evicted.get(), 100, 500, 3, 4), 14);
  EXPECT_EQ(layer_demand(evicted.get(), 100, 20, 0, 4), 20);
  EXPECT_EQ(layer_demand(whole.get(), 100, 500, 3, 4), 100);
  EXPECT_EQ(kv_demand(evicted.get(), 100, 500, 4), 29);
  EXPECT_EQ(kv_demand(evicted.get(), 100, 20, 4), 19);  // 20, 20, 20 and 14
  EXPECT_EQ(blocks_demand(evicted.get(), 100, 500, 4, 8), 6 + 5 + 3 + 2);
  EXPECT_EQ(blocks_demand(whole.get(), 100, 500, 4, 8), 4 * 13);
  EXPECT_EQ(blocks_demand(nullptr, 0, 33, 4, 8), 4 * 5);
  EXPECT_EQ(most_demand(evicted.get(), 100, 500, 4), 44);
  EXPECT_EQ(most_demand(nullptr, 100, 500, 4), 500);
  const auto rising = layer_rule("scissorhands:budget=30,recent=10,slack=4,prompt=evicted,layers=1.5.2");
  EXPECT_EQ(layer_demand(rising.get(), 100, 500, 1, 3), 51);  // 18, 47 and 25, of 17.5, 47.5 and 25
  EXPECT_EQ(most_demand(rising.get(), 100, 500, 3), 51);
  EXPECT_EQ(rising->first_decision(100, 3), layer_demand(rising.get(), 100, 500, 0, 3));
  const auto alike = layer_rule("h2o:budget=20,slack=4,prompt=evicted");
  EXPECT_EQ(kv_demand(alike.get(), 100, 500, 4), 24);
  EXPECT_EQ(blocks_demand(alike.get(), 100, 500, 4, 8), 12);
}

// The schedule is that of one evictor, whatever each layer stores, and none exceeds its budget and the slack.
// Whichever layer has the smallest budget: the first, the last, or one between.
TEST(LayerBudgets, FirstDecisionIsWhenTheSmallestIsFull) {
  const auto first = [](const std::string& text, int64_t prompt, int64_t layers) {
    return layer_rule(text)->first_decision(prompt, layers);
  };
  EXPECT_EQ(first("pyramidkv:budget=60,window=20,beta=4,slack=8", 5, 5), 30 + 8);
  EXPECT_EQ(first("pyramidkv:budget=60,window=20,beta=4,slack=8", 5, 1), 60 + 8);
  EXPECT_EQ(first("pyramidkv:budget=60,window=20,beta=4,slack=8", 39, 5), 39) << "the whole prompt";
  EXPECT_EQ(first("pyramidkv:budget=60,window=20,beta=4,slack=8,prompt=evicted", 39, 5), 38);
  EXPECT_EQ(first("scissorhands:budget=50,layers=1.2.3,slack=8", 5, 3), 30 + 8);
  EXPECT_EQ(first("scissorhands:budget=50,layers=2.1.3,slack=8", 5, 3), 30 + 8);
  EXPECT_EQ(first("scissorhands:budget=50,layers=3.2.1,slack=8", 5, 3), 30 + 8);
}

TEST(LayerBudgets, MostDemandIsThatOfTheLargest) {
  const auto rule = layer_rule("scissorhands:budget=50,layers=1.3.2,slack=8,prompt=evicted");
  EXPECT_EQ(most_demand(rule.get(), 5, 1000, 3), 70 + 8);
  EXPECT_EQ(most_demand(rule.get(), 5, 60, 3), 60);
  EXPECT_EQ(most_demand(layer_rule("pyramidkv:budget=60,window=20,beta=4,slack=8,prompt=evicted").get(), 5, 1000, 5),
            98);
}

TEST(LayerEviction, LayersDecideTogether) {
  for (const char* text :
       {"pyramidkv:budget=20,window=4,beta=4,slack=5", "spatten:keep=30,final=8,slack=5",
        "pyramidkv:budget=20,window=4,beta=4,slack=5,prompt=evicted", "spatten:keep=30,final=8,slack=3,prompt=evicted",
        "scissorhands:budget=20,recent=4,slack=5,layers=1.3.6.2",
        "scissorhands:budget=20,recent=4,slack=3,prompt=evicted,layers=1.3.6.2"}) {
    const auto rule = layer_rule(text);
    for (const int64_t prompt : {1, 12, 60}) {
      TokenEviction eviction(rule, prompt, 200, 1, 4);
      ASSERT_EQ(eviction.layers(), 4);
      std::mt19937_64 random(7);
      int64_t before = 0;
      for (int64_t computed = 0; computed <= 200; ++computed) {
        int64_t stored = 0;
        for (int64_t layer = 0; layer < 4; ++layer) {
          const int64_t slots = computed - eviction.evicted(layer);
          const int64_t most = rule->evictor->budget_of(layer, 4) + rule->slack;
          EXPECT_LE(slots, before > 0 || !rule->whole_prompt ? most : std::max(most, prompt));
          EXPECT_LE(slots, layer_demand(rule.get(), prompt, 200, layer, 4));
          for (int64_t& one : eviction.tokens(layer).mass(slots)) one += static_cast<int64_t>(random() % 100);
          stored += slots;
        }
        if (computed < eviction.next()) {
          const int64_t expected = stored_tokens(rule.get(), prompt, computed, 4);
          if (rule->evictor->cascades())
            EXPECT_LE((stored + 3) / 4, expected) << text << computed;
          else
            EXPECT_EQ((stored + 3) / 4, expected) << text << ", " << prompt << ", " << computed;
          continue;
        }
        EXPECT_EQ(computed, before == 0 ? rule->first_decision(prompt, 4) : before + rule->slack);
        before = computed;
        eviction.decide();
        for (int64_t layer = 0; layer < 4; ++layer)
          EXPECT_LE(computed - eviction.evicted(layer), rule->evictor->budget_of(layer, 4));
      }
      EXPECT_GT(eviction.decisions(), 20);
    }
  }
}

// A cascade by its definition, with sets of positions: worth is everything that a token has received in any layer.
TEST(LayerEviction, ACascadeKeepsTheWorthiestOfWhatTheLayerBeforeKeeps) {
  constexpr int64_t kLayers = 5, kRecent = 4;
  std::mt19937_64 random(8);
  for (const char* text : {"spatten:keep=24,final=6,recent=4,slack=5,prompt=evicted",
                           "spatten:keep=16,final=16,recent=4,slack=1", "spatten:keep=30,final=2,recent=4,slack=7"}) {
    const auto rule = layer_rule(text);
    TokenEviction eviction(rule, 33, 1000, 1, kLayers);
    std::vector<std::vector<int32_t>> stored(kLayers);
    std::map<int32_t, int64_t> worth;
    for (int32_t computed = 0; computed < 400;) {
      for (auto& one : stored) one.push_back(computed);
      ++computed;
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        const auto& own = stored[static_cast<size_t>(layer)];
        const auto mass = eviction.tokens(layer).mass(std::ssize(own));
        for (size_t i = 0; i < own.size(); ++i) {
          const auto one = static_cast<int64_t>(random() % 5);  // with ties
          mass[i] += one;
          worth[own[i]] += one;
        }
      }
      if (computed < eviction.next()) continue;
      std::set<int32_t> left(stored.front().begin(), stored.front().end());
      eviction.decide();
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        auto& own = stored[static_cast<size_t>(layer)];
        const std::vector<int32_t> before = own;
        std::erase_if(own, [&](int32_t position) { return !left.contains(position); });
        const int64_t budget = rule->evictor->budget_of(layer, kLayers);
        while (std::ssize(own) > budget) {  // the least worthy one, the oldest of equal ones
          const int64_t newest = std::min(kRecent, budget);
          const auto least = std::min_element(own.begin(), own.end() - newest, [&](int32_t a, int32_t b) {
            return std::pair(worth[a], a) < std::pair(worth[b], b);
          });
          own.erase(least);
        }
        left = {own.begin(), own.end()};
        const auto positions = eviction.positions(layer);
        ASSERT_EQ(std::vector<int32_t>(positions.begin(), positions.end()), own) << text << ", " << layer;
        std::vector<int32_t> kept;
        for (const int32_t slot : eviction.tokens(layer).kept()) kept.push_back(before[static_cast<size_t>(slot)]);
        ASSERT_EQ(kept, own);
        ASSERT_EQ(eviction.evicted(layer), computed - std::ssize(own));
      }
    }
    EXPECT_GT(eviction.decisions(), 40);
  }
}

TEST(LayerEviction, StartsAgainFromNothing) {
  for (const char* text : {"pyramidkv:budget=9,window=2,beta=3,slack=3", "spatten:keep=14,final=4,slack=3"}) {
    TokenEviction eviction(layer_rule(text), 20, 100, 1, 3);
    std::vector<std::vector<int32_t>> first, second;
    for (auto* decisions : {&first, &second}) {
      for (int64_t computed = 1; computed <= 50; ++computed) {
        for (int64_t layer = 0; layer < 3; ++layer) {
          int64_t slot = 0;
          for (int64_t& one : eviction.tokens(layer).mass(computed - eviction.evicted(layer)))
            one += computed * 7919 % (13 + layer) + slot++ % 3;
        }
        if (computed < eviction.next()) continue;
        eviction.decide();
        for (int64_t layer = 0; layer < 3; ++layer)
          decisions->emplace_back(eviction.tokens(layer).kept().begin(), eviction.tokens(layer).kept().end());
      }
      eviction.start_again();
      EXPECT_EQ(eviction.evicted(2), 0);
    }
    EXPECT_GT(first.size(), 20u);
    EXPECT_EQ(first, second);
  }
}

}  // namespace
}  // namespace millrace
