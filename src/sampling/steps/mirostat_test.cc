// Mirostat against a plain computation of its cut and of mu.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/steps/factories.h"

namespace millrace {
namespace {

// Surprises in steps of about a fourteenth of a bit: the number of remaining tokens shows mu.
constexpr size_t kMirostatVocab = 400;
std::vector<float> fine_logits() {
  std::vector<float> logits(kMirostatVocab);
  for (size_t i = 0; i < kMirostatVocab; ++i) logits[i] = -0.05f * static_cast<float>(i);
  return logits;
}

std::unique_ptr<SamplerStep> make(double tau, double eta) {
  SamplerSetup setup;
  setup.options.mirostat = 2;
  setup.options.mirostat_tau = tau;
  setup.options.mirostat_eta = eta;
  return make_mirostat(setup);
}

size_t left_by(SamplerStep& step, std::vector<float> logits = fine_logits()) {
  SamplingRow row;
  row.begin(logits, 0, 0);
  step.apply(row);
  return row.candidates().size();
}

// Mirostat as in the paper, over fine_logits().
struct Plain {
  double tau, eta, mu = 2 * tau;
  std::vector<double> bits() const {  // surprise per token
    std::vector<double> out;
    double total = 0;
    for (float logit : fine_logits()) total += std::exp(static_cast<double>(logit));
    for (float logit : fine_logits()) out.push_back(std::log2(total) - static_cast<double>(logit) / std::log(2.0));
    return out;
  }
  size_t left() const {  // in order of surprise; the best one is always kept
    size_t n = 0;
    for (double surprise : bits()) n += surprise <= mu ? 1 : 0;
    return std::max<size_t>(n, 1);
  }
  void take(size_t token) {
    double total = 0;
    for (size_t i = 0; i < left(); ++i) total += std::exp2(-bits()[i]);
    mu -= eta * (bits()[token] + std::log2(total) - tau);
  }
};

TEST(Mirostat, MatchesThePaperTokenByToken) {
  const auto step = make(4, 0.7);
  Plain plain{4, 0.7};
  for (size_t turn = 0; turn < 40; ++turn) {
    const size_t left = left_by(*step);
    ASSERT_EQ(left, plain.left()) << "turn " << turn << ", mu " << plain.mu;
    const size_t token = turn * 7919 % left;
    step->accept(static_cast<TokenId>(token));
    plain.take(token);
  }
}

TEST(Mirostat, UpdatesMuOncePerDrawnTokenAndNotForThePrompt) {
  const auto step = make(3, 1);
  Plain plain{3, 1};
  step->accept(5);  // of the prompt
  EXPECT_EQ(left_by(*step), plain.left());
  step->accept(0);
  plain.take(0);
  for (TokenId token : {1, 2, 3}) step->accept(token);  // nothing was drawn for these
  EXPECT_EQ(left_by(*step), plain.left());
}

TEST(Mirostat, TruncatedTokenDoesNotUpdateMu) {
  const auto step = make(1, 1);
  const size_t left = left_by(*step);
  ASSERT_LT(left, kMirostatVocab - 1);
  step->accept(kMirostatVocab - 1);
  EXPECT_EQ(left_by(*step), left);
}

TEST(Mirostat, ResetClearsMuAndThePendingDraw) {
  const auto step = make(3, 1);
  const size_t first = left_by(*step);
  step->accept(0);
  ASSERT_NE(left_by(*step), first);
  step->reset();
  step->accept(1);  // of the next prompt
  EXPECT_EQ(left_by(*step), first);
}

TEST(Mirostat, KeepsTheBestTokenIfAllAreTooSurprising) {
  const auto step = make(0.1, 0.1);
  EXPECT_EQ(left_by(*step, {1, 1, 1, 1}), 1u);
}

TEST(Mirostat, KeepsTokensWithSurpriseEqualToMu) {
  const auto step = make(0.5, 0.1);  // mu is one bit
  EXPECT_EQ(left_by(*step, {0, 0}), 2u);
}

TEST(Mirostat, EmptyRowChangesNothing) {
  const auto step = make(3, 1);
  Plain plain{3, 1};
  left_by(*step);
  EXPECT_EQ(left_by(*step, std::vector<float>(3, -std::numeric_limits<float>::infinity())), 0u);
  step->accept(0);  // drawn from the previous row
  plain.take(0);
  EXPECT_EQ(left_by(*step), plain.left());
}

}  // namespace
}  // namespace millrace
