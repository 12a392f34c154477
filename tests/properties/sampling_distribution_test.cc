// Statistical tests: each sampling step against a distribution computed here from its definition, 100,000 draws each at
// a fixed seed (so the outcome is fixed too), checked with Pearson's chi-square. Tokens without probability must never
// be drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "sampling/chain.h"

namespace millrace {
namespace {

using Distribution = std::vector<double>;  // by token id

constexpr int64_t kDraws = 100000;
constexpr int kDistributionVocab = 24;

std::vector<float> test_logits() {
  std::vector<float> out;
  for (int i = 0; i < kDistributionVocab; ++i) out.push_back(static_cast<float>(3.0 * std::sin(i * 2.7) + 0.05 * i));
  return out;
}

SamplerSetup neutral() {
  SamplerSetup setup;
  setup.vocab_size = kDistributionVocab;
  setup.options.seed = 12345;
  setup.options.top_k = 0;
  setup.options.top_p = 1;
  setup.options.min_p = 0;
  setup.options.temperature = 1;
  return setup;
}

// ---- the definitions, on whole distributions ----------------------------------------------------

Distribution normalize(Distribution p) {
  double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (auto& x : p) x /= sum;
  return p;
}

Distribution softmax(const std::vector<double>& logits) {
  Distribution p;
  for (double x : logits) p.push_back(std::exp(x));
  return normalize(p);
}

std::vector<double> as_double(const std::vector<float>& x) { return {x.begin(), x.end()}; }
Distribution model() { return softmax(as_double(test_logits())); }

std::vector<size_t> by_probability(const Distribution& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  return order;
}

// Keeps tokens in `order` until stop(kept mass, kept count) is true.
Distribution keep_until(const Distribution& p, const std::vector<size_t>& order,
                        const std::function<bool(double, int)>& stop) {
  Distribution out(p.size(), 0.0);
  double mass = 0;
  int count = 0;
  for (size_t i : order) {
    if (p[i] == 0) continue;
    out[i] = p[i];
    mass += p[i];
    if (stop(mass, ++count)) break;
  }
  return normalize(out);
}

Distribution keep_if(const Distribution& p, const std::function<bool(size_t)>& keep) {
  Distribution out = p;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!keep(i)) out[i] = 0;
  }
  return normalize(out);
}

Distribution tempered(const Distribution& p, double temperature) {
  Distribution out = p;
  for (auto& x : out) x = x > 0 ? std::pow(x, 1 / temperature) : 0;
  return normalize(out);
}

double entropy(const Distribution& p) {
  double sum = 0;
  for (double x : p) sum -= x > 0 ? x * std::log(x) : 0;
  return sum;
}

// ---- the test statistic -----------------------------------------------------------------------------------

// The chi-square value that a correct sampler exceeds once in a million (Wilson and Hilferty's approximation).
double chi_square_limit(int degrees) {
  double n = degrees;
  double t = 1 - 2 / (9 * n) + 4.753 * std::sqrt(2 / (9 * n));
  return n * t * t * t;
}

void expect_distribution(const SamplerSetup& setup, const Distribution& expected,
                         const std::vector<TokenId>& history = {}) {
  auto chain = SamplerChain::create(setup);
  ASSERT_TRUE(chain.ok()) << chain.error().message;
  for (TokenId token : history) chain->accept(token);
  std::vector<int64_t> counts(kDistributionVocab, 0);
  SamplingRow row;
  const auto original = test_logits();
  for (int64_t position = 0; position < kDraws; ++position) {
    auto logits = original;
    auto token = chain->sample(logits, position, row);
    ASSERT_TRUE(token.ok());
    ++counts[static_cast<size_t>(*token)];
  }
  // Tokens expected less than 10 times are pooled.
  double statistic = 0, pooled_expected = 0, pooled_count = 0;
  int cells = 0;
  auto add_cell = [&](double want, double got) {
    statistic += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    double want = expected[i] * static_cast<double>(kDraws);
    if (expected[i] == 0) {
      ASSERT_EQ(counts[i], 0) << "token " << i << " has no probability";
    } else if (want < 10) {
      pooled_expected += want;
      pooled_count += static_cast<double>(counts[i]);
    } else {
      add_cell(want, static_cast<double>(counts[i]));
    }
  }
  if (pooled_expected > 0) add_cell(std::max(pooled_expected, 1.0), pooled_count);
  if (cells > 1) {
    EXPECT_LT(statistic, chi_square_limit(cells - 1)) << cells << " cells";
  }
}

// ---- one test per step ---------------------------------------------------------------------------

TEST(SamplingDistribution, TheModelsOwn) { expect_distribution(neutral(), model()); }

TEST(SamplingDistribution, Temperature) {
  for (double t : {0.3, 0.8, 2.5}) {
    auto setup = neutral();
    setup.options.temperature = t;
    expect_distribution(setup, tempered(model(), t));
  }
}

TEST(SamplingDistribution, DynamicTemperature) {
  auto setup = neutral();
  setup.options.temperature = 1.2;
  setup.options.dynamic_temperature_range = 0.7;
  setup.options.dynamic_temperature_exponent = 1.5;
  double relative = entropy(model()) / std::log(static_cast<double>(kDistributionVocab));
  expect_distribution(setup, tempered(model(), 0.5 + 1.4 * std::pow(relative, 1.5)));
}

TEST(SamplingDistribution, TopK) {
  for (int k : {1, 5, 23}) {
    auto setup = neutral();
    setup.options.top_k = k;
    auto p = model();
    expect_distribution(setup, keep_until(p, by_probability(p), [&](double, int count) { return count == k; }));
  }
}

TEST(SamplingDistribution, TopP) {
  for (double top_p : {0.2, 0.7, 0.99}) {
    auto setup = neutral();
    setup.options.top_p = top_p;
    auto p = model();
    expect_distribution(setup, keep_until(p, by_probability(p), [&](double mass, int) { return mass >= top_p; }));
  }
}

TEST(SamplingDistribution, MinP) {
  auto setup = neutral();
  setup.options.min_p = 0.2;
  auto p = model();
  double best = *std::max_element(p.begin(), p.end());
  expect_distribution(setup, keep_if(p, [&](size_t i) { return p[i] >= 0.2 * best; }));
}

TEST(SamplingDistribution, TypicalP) {
  for (double typical : {0.3, 0.9}) {
    auto setup = neutral();
    setup.options.typical_p = typical;
    auto p = model();
    double h = entropy(p);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::fabs(-std::log(p[a]) - h) < std::fabs(-std::log(p[b]) - h);
    });
    expect_distribution(setup, keep_until(p, order, [&](double mass, int) { return mass > typical; }));
  }
}

TEST(SamplingDistribution, TopNSigma) {
  auto setup = neutral();
  setup.options.top_n_sigma = 1.0;
  auto logits = as_double(test_logits());
  double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / kDistributionVocab;
  double variance = 0;
  for (double x : logits) variance += (x - mean) * (x - mean) / kDistributionVocab;
  double threshold = *std::max_element(logits.begin(), logits.end()) - std::sqrt(variance);
  expect_distribution(setup, keep_if(model(), [&](size_t i) { return logits[i] >= threshold; }));
}

TEST(SamplingDistribution, XtcMixesWithAndWithout) {
  auto setup = neutral();
  setup.options.xtc_probability = 0.3;
  setup.options.xtc_threshold = 0.08;
  auto p = model();
  auto order = by_probability(p);
  size_t above = 0;
  while (p[order[above]] >= 0.08) ++above;
  ASSERT_GE(above, 3u);
  auto without = p;
  for (size_t i = 0; i + 1 < above; ++i) without[order[i]] = 0;
  without = normalize(without);
  Distribution expected;
  for (size_t i = 0; i < p.size(); ++i) expected.push_back(0.7 * p[i] + 0.3 * without[i]);
  expect_distribution(setup, expected);
}

TEST(SamplingDistribution, Penalties) {
  auto setup = neutral();
  setup.options.repetition_penalty = 1.3;
  setup.options.frequency_penalty = 0.2;
  setup.options.presence_penalty = 0.4;
  auto logits = as_double(test_logits());
  std::vector<TokenId> history = {1, 2, 3, 3, 3, 7, 8};
  for (auto [token, count] : std::vector<std::pair<size_t, int>>{{1, 1}, {2, 1}, {3, 3}, {7, 1}, {8, 1}}) {
    double& x = logits[token];
    x = (x > 0 ? x / 1.3 : x * 1.3) - 0.2 * count - 0.4;
  }
  expect_distribution(setup, softmax(logits), history);
}

TEST(SamplingDistribution, Dry) {
  auto setup = neutral();
  setup.options.dry_multiplier = 0.5;
  setup.options.dry_base = 1.75;
  auto logits = as_double(test_logits());
  logits[12] -= 0.5 * 1.75;  // "4 5 6" occurred before 12
  logits[9] -= 0.5;          // "5 6" occurred before 9
  expect_distribution(setup, softmax(logits), {4, 5, 6, 12, 1, 5, 6, 9, 4, 5, 6});
}

TEST(SamplingDistribution, BiasBanAllowAndEndOfGeneration) {
  auto setup = neutral();
  setup.options.logit_bias = {{2, 1.5}, {3, -2.0}};
  setup.options.banned_tokens = {5, 6};
  setup.options.allowed_tokens = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23};
  setup.end_of_generation = {7};
  setup.ignore_eos = true;
  auto logits = as_double(test_logits());
  logits[2] += 1.5;
  logits[3] -= 2.0;
  std::vector<size_t> left = {1, 2, 3, 11, 13, 17, 19, 23};
  expect_distribution(
      setup, keep_if(softmax(logits), [&](size_t i) { return std::find(left.begin(), left.end(), i) != left.end(); }));
}

// The defaults together: each step sees the tokens that the previous one kept.
TEST(SamplingDistribution, StepsCompose) {
  auto setup = neutral();
  setup.options.top_k = 12;
  setup.options.top_p = 0.9;
  setup.options.min_p = 0.1;
  setup.options.temperature = 0.7;
  auto p = model();
  p = keep_until(p, by_probability(p), [](double, int count) { return count == 12; });
  p = keep_until(p, by_probability(p), [](double mass, int) { return mass >= 0.9; });
  double best = *std::max_element(p.begin(), p.end());
  p = keep_if(p, [&](size_t i) { return p[i] >= 0.1 * best; });
  expect_distribution(setup, tempered(p, 0.7));
}

TEST(SamplingDistribution, GreedyIsAlwaysTheBest) {
  auto setup = neutral();
  setup.options.temperature = 0;
  auto p = model();
  Distribution expected(kDistributionVocab, 0.0);
  expected[by_probability(p)[0]] = 1;
  expect_distribution(setup, expected);
}

// ---- mirostat ------------------------------------------------------------------------------------

// The surprise that mirostat steers (among the tokens it leaves) averages tau.
TEST(Mirostat, SurpriseConvergesToTau) {
  for (double tau : {2.0, 4.0, 5.5}) {
    SamplerSetup setup;
    setup.vocab_size = 2000;
    setup.options.seed = 99;
    setup.options.temperature = 1;
    setup.options.mirostat = 2;
    setup.options.mirostat_tau = tau;
    setup.options.mirostat_eta = 0.1;
    auto chain = SamplerChain::create(setup);
    ASSERT_TRUE(chain.ok());
    SamplingRow row;
    std::mt19937 engine(1);
    double sum = 0;
    int counted = 0;
    for (int64_t position = 0; position < 4000; ++position) {
      std::vector<float> logits(2000);
      for (size_t i = 0; i < logits.size(); ++i) {  // Zipf's law, disturbed
        logits[i] = static_cast<float>(-1.1 * std::log(static_cast<double>(i + 1)) +
                                       static_cast<double>(engine() % 1000) / 500.0);
      }
      auto token = chain->sample(logits, position, row);
      ASSERT_TRUE(token.ok());
      Softmax softmax = row.softmax();
      for (const auto& candidate : row.candidates()) {
        if (candidate.token == *token && position >= 500) {
          sum -= std::log2(softmax.probability(candidate.logit));
          ++counted;
        }
      }
      chain->accept(*token);
    }
    EXPECT_EQ(counted, 3500);
    EXPECT_NEAR(sum / counted, tau, 0.05) << "tau " << tau;
  }
}

TEST(Mirostat, PromptTokensDoNotMoveIt) {
  auto setup = neutral();
  setup.options.mirostat = 2;
  auto a = SamplerChain::create(setup);
  auto b = SamplerChain::create(setup);
  for (TokenId token = 0; token < 20; ++token) b->accept(token);
  SamplingRow row;
  for (int64_t position = 0; position < 50; ++position) {
    auto x = test_logits();
    auto y = test_logits();
    auto left = a->sample(x, position, row);
    auto right = b->sample(y, position, row);
    ASSERT_EQ(*left, *right);
    a->accept(*left);
    b->accept(*right);
  }
}

}  // namespace
}  // namespace millrace
