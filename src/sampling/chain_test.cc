#include "sampling/chain.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace millrace {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(int32_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (auto& x : out) x = static_cast<float>(engine() % 10000) / 1000.0f;
  return out;
}

// All steps enabled.
SamplerSetup busy() {
  SamplerSetup setup;
  setup.vocab_size = 50;
  auto& o = setup.options;
  o.seed = 42;
  o.repetition_penalty = 1.1;
  o.frequency_penalty = 0.1;
  o.presence_penalty = 0.1;
  o.dry_multiplier = 0.8;
  o.logit_bias = {{3, 1.0}};
  o.banned_tokens = {4};
  o.top_n_sigma = 2;
  o.typical_p = 0.95;
  o.xtc_probability = 0.5;
  o.dynamic_temperature_range = 0.3;
  setup.end_of_generation = {1};
  setup.min_tokens = 3;
  return setup;
}

TokenId step(SamplerChain& chain, int64_t position, uint32_t stream, SamplingRow& row) {
  auto logits = random_logits(50, stream * 1000 + static_cast<uint32_t>(position));
  auto token = chain.sample(logits, position, row);
  EXPECT_TRUE(token.ok());
  chain.accept(*token);
  return *token;
}

TEST(Chain, StreamDoesNotDependOnOtherStreamsOrTheirOrder) {
  std::vector<std::vector<TokenId>> alone(4);
  for (uint32_t s = 0; s < 4; ++s) {
    auto setup = busy();
    setup.options.seed = s;
    auto chain = SamplerChain::create(setup);
    SamplingRow row;
    for (int64_t p = 0; p < 40; ++p) alone[s].push_back(step(*chain, p, s, row));
  }
  std::vector<SamplerChain> chains;
  for (uint32_t s = 0; s < 4; ++s) {
    auto setup = busy();
    setup.options.seed = s;
    chains.push_back(std::move(*SamplerChain::create(setup)));
  }
  SamplingRow shared;
  for (int64_t p = 0; p < 40; ++p) {
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t s = p % 2 ? i : 3 - i;
      ASSERT_EQ(step(chains[s], p, s, shared), alone[s][static_cast<size_t>(p)]);
    }
  }
  EXPECT_NE(alone[0], alone[1]);
}

TEST(Chain, SeedsAndPositionsChangeTheDraw) {
  SamplerSetup setup;
  setup.vocab_size = 50;
  setup.options.temperature = 1;
  SamplingRow row;
  std::set<TokenId> by_seed, by_position;
  for (uint64_t i = 0; i < 50; ++i) {
    std::vector<float> flat(50, 1.0f);
    setup.options.seed = i;
    by_seed.insert(*SamplerChain::create(setup)->sample(flat, 0, row));
    setup.options.seed = 0;
    flat.assign(50, 1.0f);
    by_position.insert(*SamplerChain::create(setup)->sample(flat, static_cast<int64_t>(i), row));
  }
  EXPECT_GT(by_seed.size(), 15u);
  EXPECT_GT(by_position.size(), 15u);
}

TEST(Chain, ClonesAreIndependent) {
  for (int64_t mirostat : {0, 2}) {
    auto setup = busy();
    setup.options.mirostat = mirostat;
    auto original = SamplerChain::create(setup);
    SamplingRow row;
    for (int64_t p = 0; p < 10; ++p) step(*original, p, 0, row);
    auto clone = original->clone();
    for (int64_t p = 10; p < 30; ++p) step(clone, p, 7, row);  // different logits, so a different history
    auto fresh = SamplerChain::create(setup);
    for (int64_t p = 0; p < 10; ++p) step(*fresh, p, 0, row);
    for (int64_t p = 10; p < 30; ++p) ASSERT_EQ(step(*original, p, 0, row), step(*fresh, p, 0, row));
  }
}

TEST(Chain, ResetClearsTheHistory) {
  for (int64_t mirostat : {0, 2}) {
    auto setup = busy();
    setup.options.mirostat = mirostat;
    auto chain = SamplerChain::create(setup);
    SamplingRow row;
    std::vector<TokenId> first, second;
    for (int64_t p = 0; p < 30; ++p) first.push_back(step(*chain, p, 0, row));
    chain->reset();
    for (int64_t p = 0; p < 30; ++p) second.push_back(step(*chain, p, 0, row));
    EXPECT_EQ(first, second);
  }
}

TEST(Chain, StepsRunInTheDocumentedOrder) {
  SamplerSetup setup;
  setup.vocab_size = 3;
  auto& o = setup.options;
  o.temperature = 100;  // were temperature first, min_p would keep everything
  o.min_p = 0.5;
  o.top_p = 1;
  auto chain = SamplerChain::create(setup);
  SamplingRow row;
  std::vector<float> logits = {3, 2, 1};
  chain->apply(logits, 0, row);
  ASSERT_EQ(row.candidates().size(), 1u);
  o.repetition_penalty = 2;  // divides 4 to 2 before the bias adds 1
  o.logit_bias = {{0, 1.0}};
  auto biased = SamplerChain::create(setup);
  biased->accept(0);
  logits = {4, 2, 1};
  biased->apply(logits, 0, row);
  EXPECT_EQ(logits[0], 3.0f);
}

TEST(Chain, ReportsThatNoTokenIsLeft) {
  SamplingRow row;
  for (double temperature : {0.0, 0.8}) {
    for (int64_t mirostat : {0, 2}) {
      auto setup = busy();
      setup.options.temperature = temperature;
      setup.options.mirostat = mirostat;
      for (float bad : {kNan, -kInf}) {
        std::vector<float> logits(50, bad);
        auto token = SamplerChain::create(setup)->sample(logits, 0, row);
        ASSERT_FALSE(token.ok());
        EXPECT_NE(token.error().message.find("no token is left"), std::string::npos);
      }
    }
  }
  SamplerSetup setup;
  setup.vocab_size = 2;
  setup.options.banned_tokens = {0, 1};
  std::vector<float> logits = {1, 2};
  EXPECT_EQ(SamplerChain::create(setup)->sample(logits, 0, row).error().kind, ErrorKind::user);
}

TEST(Chain, SurvivesAnyLogits) {
  std::mt19937 engine(5);
  const float odd[] = {kNan, kInf, -kInf, 0.0f, -0.0f, 1e38f, -1e38f, 1e-45f, 1.0f, 3.4e38f};
  SamplingRow row;
  for (int round = 0; round < 3000; ++round) {
    auto setup = busy();
    auto& o = setup.options;
    o.seed = engine();
    auto pick = [&](double off, double low, double high) {
      return engine() % 2 ? off : low + (high - low) * static_cast<double>(engine()) * 0x1p-32;
    };
    o.top_k = engine() % 60;
    o.top_p = pick(1, 0, 1);
    o.min_p = pick(0, 0, 1);
    o.typical_p = pick(1, 0, 1);
    o.top_n_sigma = pick(-1, 0, 3);
    o.xtc_threshold = pick(0.1, 0, 0.5);
    o.temperature = pick(0, 0, 1000);
    o.dynamic_temperature_range = pick(0, 0, 1000);
    o.mirostat = engine() % 3 == 0 ? 2 : 0;
    o.mirostat_tau = pick(5, 0, 100);
    auto chain = SamplerChain::create(setup);
    ASSERT_TRUE(chain.ok()) << chain.error().message;
    for (int64_t position = 0; position < 5; ++position) {
      std::vector<float> logits(50);
      bool any = false;
      for (size_t i = 0; i < logits.size(); ++i) {
        logits[i] = engine() % 3 ? odd[engine() % 10] : static_cast<float>(engine() % 100) - 50;
        bool eligible = i != 4 && (i != 1 || position >= 3);
        any |= eligible && logits[i] > -kInf;
      }
      auto original = logits;
      auto token = chain->sample(logits, position, row);
      ASSERT_EQ(token.ok(), any);
      if (!token.ok()) continue;
      ASSERT_TRUE(*token >= 0 && *token < 50 && *token != 4);
      ASSERT_GT(original[static_cast<size_t>(*token)], -kInf);
      chain->accept(*token);
    }
  }
}

TEST(Chain, RefusesOptionsOutOfBounds) {
  SamplerSetup setup;
  setup.vocab_size = 10;
  setup.options.banned_tokens = {10};
  EXPECT_EQ(SamplerChain::create(setup).error().kind, ErrorKind::user);
}

}  // namespace
}  // namespace millrace
