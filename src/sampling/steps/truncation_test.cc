// Edge cases of truncating steps: two candidates, and thresholds that are met exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

using Ids = std::vector<TokenId>;

std::vector<float> log_of(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

std::unique_ptr<SamplerStep> make(SamplerFactory factory, const std::function<void(SamplingOptions&)>& change) {
  SamplerSetup setup;
  setup.options.temperature = 1;
  change(setup.options);
  return factory(setup);
}

// The remaining tokens, ascending.
Ids kept_by(SamplerStep& step, std::vector<float> logits, uint64_t seed = 0, int64_t position = 0) {
  SamplingRow row;
  row.begin(logits, seed, position);
  step.apply(row);
  Ids out;
  for (const Candidate& candidate : row.candidates()) out.push_back(candidate.token);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(TopNSigma, DeviationOfTwoCandidates) {
  // Mean 1/2, deviation 1/2.
  EXPECT_EQ(kept_by(*make(make_top_n_sigma, [](auto& o) { o.top_n_sigma = 1.9; }), {1, 0}), (Ids{0}));
  EXPECT_EQ(kept_by(*make(make_top_n_sigma, [](auto& o) { o.top_n_sigma = 2; }), {1, 0}), (Ids{0, 1}));
}

TEST(TopP, StopsWhereTheMassIsReached) {
  const auto half = make(make_top_p, [](auto& o) { o.top_p = 0.5; });
  EXPECT_EQ(kept_by(*half, log_of({0.4, 0.6})), (Ids{1}));
  EXPECT_EQ(kept_by(*half, {0, 0}), (Ids{0})) << "half the mass is enough";
  EXPECT_EQ(kept_by(*half, {0, 0, 0, 0}), (Ids{0, 1}));
}

TEST(TypicalP, ContinuesUntilTheMassIsExceeded) {
  const auto half = make(make_typical_p, [](auto& o) { o.typical_p = 0.5; });
  EXPECT_EQ(kept_by(*half, {0, 0}), (Ids{0, 1})) << "half the mass is not more than half";
  EXPECT_EQ(kept_by(*half, {0, 0, 0, 0}), (Ids{0, 1, 2}));
  // Entropy 0.673 nats; surprises 0.511 and 0.916.
  EXPECT_EQ(kept_by(*half, log_of({0.4, 0.6})), (Ids{1}));
}

TEST(TypicalP, LeavesAListNotSortedByLogits) {
  const auto step = make(make_typical_p, [](auto& o) { o.typical_p = 0.75; });
  std::vector<float> logits = log_of({0.6, 0.2, 0.1, 0.1});  // token 1 is the most typical one
  SamplingRow row;
  row.begin(logits, 0, 0);
  row.keep_best(4);
  step->apply(row);
  ASSERT_EQ(row.candidates().size(), 2u);
  EXPECT_EQ(row.candidates().front().token, 1);
  EXPECT_EQ(row.max_logit(), logits[0]);
}

TEST(Xtc, KeepsTheLessLikelyOfTwoTopChoices) {
  const auto step = make(make_xtc, [](auto& o) { o.xtc_probability = 1, o.xtc_threshold = 0.3; });
  EXPECT_EQ(kept_by(*step, log_of({0.5, 0.4, 0.1})), (Ids{1, 2}));
  EXPECT_EQ(kept_by(*step, log_of({0.4, 0.6})), (Ids{0}));
}

TEST(Xtc, TopChoicesAreAtOrAboveTheThreshold) {
  const auto step = make(make_xtc, [](auto& o) { o.xtc_probability = 1, o.xtc_threshold = 0.25; });
  EXPECT_EQ(kept_by(*step, {0, 0, 0, 0}), (Ids{3}));
}

TEST(Xtc, ActsAtPositionsDrawnPerStream) {
  const auto step = make(make_xtc, [](auto& o) { o.xtc_probability = 0.5; });
  size_t times = 0;
  for (int64_t position = 0; position < 100; ++position) {
    const bool acts = philox_uniform(9, 1, static_cast<uint64_t>(position)) < 0.5;
    EXPECT_EQ(kept_by(*step, {0, 0, 0}, 9, position), acts ? Ids{2} : (Ids{0, 1, 2})) << position;
    times += acts ? 1 : 0;
  }
  EXPECT_GT(times, 30u);
  EXPECT_LT(times, 70u);
}

TEST(Xtc, DrawEqualToItsProbabilityDoesNotTrigger) {
  const double drawn = philox_uniform(9, 1, 4);
  EXPECT_EQ(kept_by(*make(make_xtc, [&](auto& o) { o.xtc_probability = drawn; }), {0, 0}, 9, 4), (Ids{0, 1}));
  EXPECT_EQ(kept_by(*make(make_xtc, [&](auto& o) { o.xtc_probability = drawn + 1e-9; }), {0, 0}, 9, 4), (Ids{1}));
}

}  // namespace
}  // namespace millrace
