// Token evictors against plain definitions, and the schedule of their decisions.
#include "kv/token_evictor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "kv/token_eviction.h"

namespace millrace {
namespace {

using Slots = std::vector<int32_t>;

std::shared_ptr<const EvictionRule> rule_of(const std::string& text) {
  auto rule = make_eviction_rule(text);
  EXPECT_TRUE(rule.ok()) << (rule.ok() ? "" : rule.error().message);
  return rule.ok() ? *rule : nullptr;
}

std::string refusal(const std::string& text) {
  const auto rule = make_eviction_rule(text);
  return rule.ok() ? "" : rule.error().message;
}

TEST(EvictionRule, ReadsNameAndOptions) {
  const auto rule = rule_of("h2o:budget=100,recent=0.25,slack=8,prompt=evicted");
  EXPECT_EQ(rule->evictor->budget(), 100);
  EXPECT_EQ(rule->most_stored(), 108);
  EXPECT_FALSE(rule->whole_prompt);
  EXPECT_EQ(rule->text, "h2o:budget=100,recent=0.25,slack=8,prompt=evicted");
  EXPECT_EQ(rule_of("streamingllm")->most_stored(), 1024 + 16);
  EXPECT_TRUE(rule_of("streamingllm")->whole_prompt);
  EXPECT_EQ(rule_of(""), nullptr);
  EXPECT_EQ(rule_of("none"), nullptr);
}

TEST(EvictionRule, NamesWhatIsWrong) {
  EXPECT_EQ(refusal("lru"), "evictor: unknown 'lru'; available: " + token_evictors().names());
  EXPECT_EQ(refusal("h2o:size=3"),
            "evictor h2o: size: no such option; known: budget, recent, worth, layers, heads, slack, prompt, scope, "
            "positions");
  EXPECT_EQ(refusal("h2o:budget=0"), "evictor h2o: budget: must be between 1 and 1073741824, got 0");
  EXPECT_EQ(refusal("streamingllm:window=0"), "evictor streamingllm: window: must be between 1 and 1073741824, got 0");
  EXPECT_EQ(refusal("streamingllm:prompt=half"), "evictor streamingllm: prompt: must be whole or evicted, got 'half'");
  EXPECT_EQ(refusal("h2o:scope=all"), "evictor h2o: scope: must be stream, layer or head, got 'all'");
  EXPECT_EQ(refusal("h2o:worth=most"), "evictor h2o: worth: must be sum or mean, got 'most'");
}

TEST(EvictionRule, LayersOfH2oChooseForThemselvesUnlessPositionsAreSlots) {
  EXPECT_EQ(rule_of("h2o")->scope, EvictionScope::layer);
  EXPECT_EQ(rule_of("h2o:positions=cache")->scope, EvictionScope::stream);
  EXPECT_EQ(rule_of("snapkv")->scope, EvictionScope::stream);
}

TEST(EvictionRule, DemandIsWhatIsStoredAtOnce) {
  const auto whole = rule_of("streamingllm:sinks=4,window=28,slack=8");
  const auto evicted = rule_of("streamingllm:sinks=4,window=28,slack=8,prompt=evicted");
  EXPECT_EQ(kv_demand(nullptr, 100, 500), 500);
  EXPECT_EQ(kv_demand(whole.get(), 100, 500), 100);
  EXPECT_EQ(kv_demand(whole.get(), 20, 500), 40);
  EXPECT_EQ(kv_demand(whole.get(), 20, 30), 30);
  EXPECT_EQ(kv_demand(evicted.get(), 100, 500), 40);
}

// Documents at the beginning of a prompt are whole until `slack` tokens behind them have seen them.
TEST(EvictionRule, JoinedDocumentsStayWholeForAWhile) {
  EvictionRule rule = *rule_of("streamingllm:sinks=4,window=28,slack=8,prompt=evicted");
  EXPECT_EQ(rule.whole_tokens(100), 0) << "no documents";
  EXPECT_EQ(rule.first_decision(100, 1), 40);
  rule.joined = 1;
  EXPECT_EQ(rule.whole_tokens(100), 9);
  EXPECT_EQ(rule.whole_tokens(5), 5) << "the prompt is shorter";
  rule.joined = 50;
  EXPECT_EQ(rule.whole_tokens(100), 58);
  EXPECT_EQ(rule.first_decision(100, 1), 58);
  EXPECT_EQ(layer_demand(&rule, 100, 500, 0, 1), 58);
  rule.whole_prompt = true;
  EXPECT_EQ(rule.whole_tokens(100), 100);
}

// Each term by itself: 10 stored tokens, 2 drafted, 6 KV heads in 3 layers.
TEST(TokenEviction, BytesAreThoseOfItsTables) {
  const auto bytes = [](const char* text, int64_t drafted = 2, int64_t gate_dims = 0) {
    return eviction_bytes(*rule_of(text), 10, drafted, 6, 3, gate_dims);
  };
  EXPECT_EQ(bytes("streamingllm"), 10 * (4 + 8)) << "a position and a slot";
  EXPECT_EQ(bytes("h2o:scope=stream", 0), 10 * (4 + 8 + 8)) << "and a sum";
  EXPECT_EQ(bytes("h2o:scope=stream"), 10 * (4 + 8 + 3 * 8)) << "and one for each drafted token";
  EXPECT_EQ(bytes("streamingllm:scope=head"), 10 * (4 + 4 + 6 * 8));
  EXPECT_EQ(bytes("h2o:scope=head"), 10 * (4 + 4 + 8 + 6 * (8 + 3 * 8)));
  EXPECT_EQ(bytes("key_norm:scope=stream"), bytes("h2o:scope=stream")) << "a sum of its keys' worth";
  EXPECT_EQ(bytes("pyramidkv"), 3 * 10 * (4 + 8 + 3 * 8)) << "each layer has its own";
  EXPECT_EQ(bytes("adaptively_sparse", 2, 5), 3 * 10 * (4 + 8 + 8 + 4 * 5)) << "the end, the slot and a row of gates";
  EXPECT_EQ(bytes("seqboat", 2, 5), 3 * 10 * (4 + 8 + 8 + 4)) << "one weight";
  const int64_t cascade = 3 * 10 * (4 + 8 + 3 * 8) + 10 * 2 * (2 * 8 + 5 * 4);
  EXPECT_EQ(bytes("spatten:heads=1"), cascade);
  EXPECT_EQ(bytes("spatten:heads=0.5"), cascade + 2 * (3 + 4 + 3 * 8)) << "and each of its 2 heads";
}

// Every member drops as many distinct slots as it is told to, in order, whatever is stored.
TEST(TokenEvictors, DropExactlyTheExcess) {
  std::mt19937_64 random(1);
  for (const auto& entry : token_evictors().entries()) {
    const auto options = parse_options("", entry.info.options);
    ASSERT_TRUE(options.ok());
    const auto evictor = entry.member(*options);
    ASSERT_TRUE(evictor.ok());
    if ((*evictor)->gated()) continue;  // is never asked
    const int64_t budget = (*evictor)->budget();
    for (const int64_t excess : {1, 2, 16, 700}) {
      Slots positions(static_cast<size_t>(budget + excess));
      std::iota(positions.begin(), positions.end(), 5);
      std::vector<int64_t> sums(positions.size());
      for (int64_t& one : sums) one = static_cast<int64_t>(random() % 50);  // many ties
      StoredTokens stored{.positions = positions};
      if ((*evictor)->needs_mass()) stored.mass = sums;
      if ((*evictor)->judges_keys()) stored.worth = sums;
      Slots dropped;
      (*evictor)->drop(stored, excess, dropped);
      ASSERT_EQ(std::ssize(dropped), excess) << entry.info.name;
      EXPECT_TRUE(std::ranges::is_sorted(dropped)) << entry.info.name;
      EXPECT_EQ(std::ranges::adjacent_find(dropped), dropped.end()) << entry.info.name;
      EXPECT_GE(dropped.front(), 0) << entry.info.name;
      EXPECT_LT(dropped.back(), std::ssize(positions)) << entry.info.name;
    }
  }
}

TEST(TokenEvictors, StreamingLlmKeepsSinksAndWindowAtEveryDecision) {
  TokenEviction eviction(rule_of("streamingllm:sinks=3,window=9,slack=5,prompt=evicted"), 1000, 1000);
  for (int decision = 0; decision < 20; ++decision) {
    const auto computed = static_cast<int32_t>(eviction.next());
    EXPECT_EQ(computed, 17 + 5 * decision);
    eviction.decide();
    Slots expected = {0, 1, 2};
    for (int32_t position = computed - 9; position < computed; ++position) expected.push_back(position);
    EXPECT_EQ(Slots(eviction.positions().begin(), eviction.positions().end()), expected);
    EXPECT_EQ(eviction.evicted(), computed - 12);
  }
  EXPECT_EQ(eviction.decisions(), 20);
}

// Sorted by mass and age, the plain way.
Slots heavy_hitters(const Slots& positions, const std::vector<double>& mass, int64_t budget, int64_t recent) {
  Slots old(positions.begin(), positions.end() - recent);
  std::vector<size_t> order(old.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return std::pair(mass[a], a) > std::pair(mass[b], b); });
  Slots kept;
  for (int64_t i = 0; i < budget - recent; ++i) kept.push_back(old[order[static_cast<size_t>(i)]]);
  kept.insert(kept.end(), positions.end() - recent, positions.end());
  std::ranges::sort(kept);
  return kept;
}

TEST(TokenEvictors, H2oKeepsTheHeaviestAndTheNewest) {
  std::mt19937_64 random(2);
  for (const auto& [recent, mean] :
       {std::pair(0.0, false), {0.3, false}, {0.5, false}, {1.0, false}, {0.0, true}, {0.3, true}}) {
    TokenEviction eviction(rule_of(fmt::format("h2o:budget=20,slack=6,prompt=evicted,recent={}%,worth={}", 100 * recent,
                                               mean ? "mean" : "sum")),
                           1, 1000);
    Slots positions;
    std::vector<int64_t> sums;
    for (int decision = 0; decision < 30; ++decision) {
      while (std::ssize(positions) < 26) {
        positions.push_back(static_cast<int32_t>(std::ssize(positions) + eviction.evicted()));
        sums.push_back(0);
        const auto mass = eviction.mass(std::ssize(positions));
        for (size_t i = 0; i < sums.size(); ++i) {
          const auto one = static_cast<int64_t>(random() % 4);
          mass[i] += one;
          sums[i] += one;
        }
      }
      std::vector<double> worth(sums.begin(), sums.end());
      for (size_t i = 0; mean && i < worth.size(); ++i) worth[i] /= positions.back() - positions[i] + 1;
      const Slots expected = heavy_hitters(positions, worth, 20, static_cast<int64_t>(20 * recent));
      const auto kept = eviction.decide();
      ASSERT_EQ(Slots(eviction.positions().begin(), eviction.positions().end()), expected) << recent;
      std::vector<int64_t> rest;
      for (const int32_t slot : kept) rest.push_back(sums[static_cast<size_t>(slot)]);
      sums = rest;
      positions = expected;
    }
  }
}

// An old token that has received more in all, and a newer one that has received more from each query since.
TEST(TokenEvictors, MeansDoNotFavorOldTokens) {
  std::vector<int64_t> sums(8);
  sums[0] = 12, sums[5] = 9;
  for (const auto& [worth, kept] : {std::pair("sum", 0), {"mean", 5}}) {
    TokenEviction eviction(rule_of(fmt::format("h2o:budget=2,recent=0.5,slack=6,prompt=evicted,worth={}", worth)), 1,
                           100);
    std::ranges::copy(sums, eviction.mass(8).begin());
    eviction.decide();
    EXPECT_EQ(Slots(eviction.positions().begin(), eviction.positions().end()), (Slots{kept, 7})) << worth;
  }
}

Slots kept_of(const std::string& text, std::vector<int64_t> mass, int32_t decisions = 1) {
  TokenEviction eviction(rule_of(text + ",slack=4,prompt=evicted"), 1, 1000);
  for (int32_t i = 0; i < decisions; ++i) {
    const auto sums = eviction.mass(eviction.next() - eviction.evicted());
    if (!mass.empty()) std::ranges::copy(mass, sums.begin());
    eviction.decide();
  }
  return {eviction.positions().begin(), eviction.positions().end()};
}

TEST(TokenEvictors, WindowKeepsTheNewest) { EXPECT_EQ(kept_of("window:budget=4", {}, 3), (Slots{12, 13, 14, 15})); }

// Not even the newest token is safe, and of equal ones the older is dropped.
TEST(TokenEvictors, TovaKeepsWhatTheNewestQueryPaysMost) {
  EXPECT_EQ(kept_of("tova:budget=4", {1, 9, 3, 7, 3, 8, 3, 2}), (Slots{1, 3, 5, 6}));
}

TEST(TokenEvictors, SnapKvKeepsNeighborsOfTheHighestVotes) {
  // Votes of the seven older tokens, the highest of three: 1 9 9 9 2 5 5.
  EXPECT_EQ(kept_of("snapkv:budget=5,window=2,kernel=3", {1, 1, 9, 1, 0, 2, 5, 99, 99}), (Slots{1, 2, 3, 7, 8}));
  EXPECT_EQ(kept_of("snapkv:budget=5,window=2,kernel=1", {1, 1, 9, 1, 0, 2, 5, 99, 99}), (Slots{2, 5, 6, 7, 8}));
  EXPECT_EQ(kept_of("snapkv:budget=2,window=32", {9, 9, 9, 9, 1, 1}), (Slots{4, 5}));  // a window above the budget
}

TEST(TokenEvictors, ScissorhandsKeepsTheMostImportantAndTheNewest) {
  EXPECT_EQ(kept_of("scissorhands:budget=4,recent=1", {5, 0, 4, 4, 0, 4, 0, 0}), (Slots{0, 3, 5, 7}));
  EXPECT_EQ(kept_of("scissorhands:budget=2,recent=10", {5, 0, 4, 4, 0, 4}), (Slots{4, 5}));
}

// The sample does not depend on how often tokens are dropped, differs by seed, and every token has the same chance.
TEST(TokenEvictors, RandomKeepsAUniformSample) {
  std::vector<int64_t> kept(200);
  Slots before;
  for (int seed = 0; seed < 400; ++seed) {
    Slots first;
    for (const int slack : {1, 10, 40}) {
      const std::string text = "random:budget=40,recent=0.5,seed=" + std::to_string(seed);
      TokenEviction eviction(rule_of(text + ",prompt=evicted,slack=" + std::to_string(slack)), 1, 1000);
      while (eviction.next() <= 200) eviction.decide();
      const Slots now(eviction.positions().begin(), eviction.positions().end());
      ASSERT_EQ(now.back(), 199);
      if (first.empty()) first = now;
      ASSERT_EQ(now, first) << slack;
    }
    EXPECT_NE(first, before);
    before = first;
    for (const int32_t position : first) ++kept[static_cast<size_t>(position)];
  }
  for (size_t position = 180; position < 200; ++position) EXPECT_EQ(kept[position], 400) << position;
  double chi = 0;  // 180 tokens share 20 places
  for (size_t position = 0; position < 180; ++position) {
    const double expected = 400.0 * 20 / 180, off = static_cast<double>(kept[position]) - expected;
    chi += off * off / (expected * (1 - 20.0 / 180));
  }
  EXPECT_LT(chi, 250);  // 179 degrees of freedom: within four standard deviations
  EXPECT_GT(chi, 120);
}

// What the queries before count is forgotten at a decision, unless all queries count.
TEST(TokenEviction, ObservesTheNewestQueriesOnly) {
  TokenEviction tova(rule_of("tova:budget=6,slack=3,prompt=evicted"), 1, 100),
      snap(rule_of("snapkv:budget=6,slack=3,window=5"), 20, 100), all(rule_of("h2o:budget=6,slack=3"), 20, 100),
      none(rule_of("window:budget=6,slack=3"), 20, 100);
  EXPECT_EQ(tova.first_observed(), 8);
  EXPECT_EQ(snap.first_observed(), 15);
  EXPECT_EQ(all.first_observed(), 0);
  EXPECT_EQ(none.first_observed(), 20);
  for (TokenEviction* one : {&tova, &snap, &all}) {
    std::ranges::fill(one->mass(one->next()), 7);
    one->decide();
    EXPECT_EQ(one->mass(6)[0], one == &all ? 7 : 0);
  }
  EXPECT_EQ(tova.first_observed(), 11);
  EXPECT_EQ(snap.first_observed(), 18);  // of 18 and 19 the sums are forgotten
}

// Drafted tokens that are kept leave what plain tokens leave; rejected ones leave nothing.
TEST(TokenEviction, CountsTheAttentionOfKeptDraftsOnly) {
  std::mt19937_64 random(4);
  const auto rule = rule_of("h2o:budget=12,recent=0.25,slack=7,prompt=evicted");
  TokenEviction plain(rule, 1, 1000), drafting(rule, 1, 1000);
  for (int64_t computed = 0; computed < 400;) {
    const int64_t kept = 1 + static_cast<int64_t>(random() % 4), rejected = static_cast<int64_t>(random() % 3);
    const int64_t count = std::min(kept, plain.next() - computed), first = computed - plain.evicted();
    std::vector<std::vector<int64_t>> rows;  // of each query, over the slots that it sees
    for (int64_t i = 0; i < count + rejected; ++i) {
      rows.emplace_back(static_cast<size_t>(first + i + 1));
      for (int64_t& one : rows.back()) one = static_cast<int64_t>(random() % 1000);
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto mass = plain.mass(first + i + 1);
      for (size_t slot = 0; slot < mass.size(); ++slot) mass[slot] += rows[static_cast<size_t>(i)][slot];
    }
    const auto own = drafting.mass(first + 1);
    for (size_t slot = 0; slot < own.size(); ++slot) own[slot] += rows.front()[slot];
    const int64_t drafted = count + rejected - 1, slots = first + 1 + drafted;
    const auto drafts = drafting.draft_mass(drafted, slots);
    ASSERT_EQ(std::ssize(drafts), drafted * slots);
    for (int64_t i = 0; i < drafted; ++i)
      for (size_t slot = 0; slot < rows[static_cast<size_t>(i + 1)].size(); ++slot)
        drafts[static_cast<size_t>(i * slots) + slot] += rows[static_cast<size_t>(i + 1)][slot];
    for (int64_t i = 1; i < count; ++i) drafting.keep_drafted();
    computed += count;
    ASSERT_EQ(Slots(drafting.mass(first + count).begin(), drafting.mass(first + count).end()),
              Slots(plain.mass(first + count).begin(), plain.mass(first + count).end()));
    if (computed < plain.next()) continue;
    const auto expected = plain.decide(), kept_slots = drafting.decide();
    ASSERT_EQ(Slots(kept_slots.begin(), kept_slots.end()), Slots(expected.begin(), expected.end())) << computed;
  }
  EXPECT_GT(plain.decisions(), 50);
}

// Three heads that choose for themselves are three evictors, drafted tokens included.
TEST(TokenEviction, HeadsChooseForThemselves) {
  constexpr int64_t kHeads = 3;
  std::mt19937_64 random(6);
  for (const char* text : {"h2o:budget=12,recent=0.25,slack=7", "snapkv:budget=12,window=4,kernel=3,slack=7",
                           "scissorhands:budget=12,recent=3,history=5,slack=7"}) {
    const auto apart = rule_of(std::string(text) + ",scope=stream"), own = rule_of(std::string(text) + ",scope=head");
    std::vector<TokenEviction> single(kHeads, TokenEviction(apart, 20, 1000));
    TokenEviction heads(own, 20, 1000, kHeads);
    ASSERT_EQ(heads.heads(), kHeads);
    ASSERT_EQ(TokenEviction(apart, 20, 1000, kHeads).heads(), 1);
    for (int64_t computed = 0; computed < 200;) {
      const int64_t count = std::min<int64_t>(1 + static_cast<int64_t>(random() % 3), heads.next() - computed);
      const int64_t first = computed - heads.evicted(), slots = first + count, drafted = count - 1;
      const auto all = heads.mass(first + 1), drafts = heads.draft_mass(drafted, slots);
      for (int64_t head = 0; head < kHeads; ++head) {
        TokenEviction& one = single[static_cast<size_t>(head)];
        const auto sums = one.mass(first + 1), own_drafts = one.draft_mass(drafted, slots);
        for (int64_t slot = 0; slot <= first; ++slot) {
          const auto mass = static_cast<int64_t>(random() % 1000);
          sums[static_cast<size_t>(slot)] += mass;
          all[static_cast<size_t>(slot * kHeads + head)] += mass;
        }
        for (int64_t i = 0; i < drafted * slots; ++i) {
          const auto mass = static_cast<int64_t>(random() % 1000);
          own_drafts[static_cast<size_t>(i)] += mass;
          drafts[static_cast<size_t>(i * kHeads + head)] += mass;
        }
      }
      for (int64_t i = 0; i < drafted; ++i) {
        heads.keep_drafted();
        for (TokenEviction& one : single) one.keep_drafted();
      }
      computed += count;
      if (computed < heads.next()) continue;
      const auto kept = heads.decide();
      ASSERT_EQ(std::ssize(kept), 12 * kHeads);
      for (int64_t head = 0; head < kHeads; ++head) {
        TokenEviction& one = single[static_cast<size_t>(head)];
        const auto slots_of_one = one.decide();
        ASSERT_TRUE(std::ranges::equal(slots_of_one, kept.subspan(static_cast<size_t>(12 * head), 12))) << text;
        for (size_t i = 0; i < 12; ++i)
          ASSERT_EQ(heads.positions()[i * kHeads + static_cast<size_t>(head)], one.positions()[i]) << text;
      }
    }
    EXPECT_GT(heads.decisions(), 20);
    EXPECT_EQ(eviction_bytes(*own, 10, 2, 1), eviction_bytes(*apart, 10, 2, 5));
    EXPECT_GT(eviction_bytes(*own, 10, 2, 2), eviction_bytes(*own, 10, 2, 1));
  }
}

TEST(TokenEviction, StartsAgainFromNothing) {
  const auto rule = rule_of("h2o:budget=5,recent=0.4,slack=3");
  std::vector<Slots> first, second;
  TokenEviction eviction(rule, 20, 100);
  for (std::vector<Slots>* decisions : {&first, &second}) {
    EXPECT_EQ(eviction.next(), 20);
    EXPECT_EQ(eviction.most_stored(), 20);
    for (int64_t computed = 1; computed <= 40; ++computed) {
      for (int64_t& one : eviction.mass(computed - eviction.evicted())) one += computed * 7919 % 13;
      if (computed < eviction.next()) continue;
      const auto kept = eviction.decide();
      decisions->emplace_back(kept.begin(), kept.end());
    }
    EXPECT_EQ(eviction.evicted(), 33);  // of 38, at the last decision
    eviction.start_again();
  }
  EXPECT_EQ(first.size(), 7u);
  EXPECT_EQ(first, second);
  EXPECT_EQ(eviction.evicted(), 0);
  EXPECT_EQ(eviction.decisions(), 0);
}

TEST(EvictionRule, StoredTokensFollowTheDecisions) {
  for (const char* text :
       {"streamingllm:sinks=2,window=6,slack=4", "streamingllm:sinks=2,window=6,slack=4,prompt=evicted",
        "streamingllm:sinks=0,window=1,slack=1"}) {
    const auto rule = rule_of(text);
    for (const int64_t prompt : {1, 5, 30}) {
      TokenEviction eviction(rule, prompt, 100);
      for (int64_t computed = 0; computed <= 100; ++computed) {
        if (computed == eviction.next()) eviction.decide();
        EXPECT_EQ(stored_tokens(rule.get(), prompt, computed), computed - eviction.evicted())
            << text << ", prompt " << prompt << ", " << computed;
        EXPECT_LE(computed - eviction.evicted(), kv_demand(rule.get(), prompt, 100));
      }
    }
  }
  EXPECT_EQ(stored_tokens(nullptr, 3, 77), 77);
}

TEST(TokenEviction, ChoosesFirstWhenTheWholePromptIsThere) {
  TokenEviction longer(rule_of("streamingllm:sinks=2,window=6,slack=4"), 50, 100);
  EXPECT_EQ(longer.most_stored(), 50);
  EXPECT_EQ(longer.next(), 50);
  EXPECT_EQ(std::ssize(longer.decide()), 8);
  EXPECT_EQ(longer.most_stored(), 12);
  EXPECT_EQ(longer.next(), 54);
  const TokenEviction shorter(rule_of("streamingllm:sinks=2,window=6,slack=4"), 5, 100);
  EXPECT_EQ(shorter.next(), 12);
}

}  // namespace
}  // namespace millrace
