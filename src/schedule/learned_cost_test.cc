// The learned cost model against textbook recursive least squares: P is the covariance, w the weights, and for each
// step x that took y seconds, with v = 1 / tokens,
//
//   g = P x / (f / v + x' P x)     w += g (y - w' x)     P = (P - g x' P) / f     f = 0.998
//
// and then, for each variance above 1e4, its row and column are scaled so that it is 1e4.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/philox.h"
#include "schedule/cost_model.h"

namespace millrace {
namespace {

using Vector = std::array<double, 3>;

StepShape learned_shape(int64_t tokens, int64_t keys) { return {tokens, 0, keys, 0}; }

class Textbook {
 public:
  explicit Textbook(bool bounded) : bounded_(bounded) {}

  double seconds(const StepShape& learned_shape) const {
    const Vector x = of(learned_shape);
    return std::max(0.0, w_[0]) * x[0] + std::max(0.0, w_[1]) * x[1] + std::max(0.0, w_[2]) * x[2];
  }
  void observe(const StepShape& learned_shape, double y) {
    const Vector x = of(learned_shape);
    Vector px;
    for (int i : {0, 1, 2}) px[i] = p_[i][0] * x[0] + p_[i][1] * x[1] + p_[i][2] * x[2];
    const double below = f_ * static_cast<double>(learned_shape.tokens) + dot(x, px);
    const double missed = y - dot(w_, x);
    for (int i : {0, 1, 2}) w_[i] += px[i] / below * missed;
    for (int i : {0, 1, 2})
      for (int j : {0, 1, 2}) p_[i][j] = (p_[i][j] - px[i] * px[j] / below) / f_;
    for (int i : {0, 1, 2})
      if (bounded_ && p_[i][i] > 1e4) bound(i);
  }

 private:
  static Vector of(const StepShape& learned_shape) {
    return {1, 0.01 * static_cast<double>(learned_shape.tokens), 1e-4 * static_cast<double>(learned_shape.keys)};
  }
  static double dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
  void bound(int i) {
    const double by = std::sqrt(1e4 / p_[i][i]);
    for (int j : {0, 1, 2}) p_[i][j] *= by;
    for (int j : {0, 1, 2}) p_[j][i] *= by;
  }

  bool bounded_;
  double f_ = 0.998;
  Vector w_ = {5e-3, 1e-1, 1e-3};
  std::array<Vector, 3> p_ = {Vector{1e4, 0, 0}, {0, 1e4, 0}, {0, 0, 1e4}};
};

// Many identical steps, with a different one now and then.
StepShape alike(int64_t tokens, int64_t keys, int i) {
  return i % 40 == 39 ? learned_shape(1 + i % 300, 100 * (i % 700)) : learned_shape(tokens, keys);
}

double took(const StepShape& step, int i) {
  return 0.004 + 0.0003 * static_cast<double>(step.tokens) + 2e-7 * static_cast<double>(step.keys) +
         0.001 * philox_uniform(1, 1, static_cast<uint64_t>(i));
}

void compare(int64_t tokens, int64_t keys, int steps) {
  auto cost = make_learned_cost();
  Textbook book(true);
  for (int i = 0; i < steps; ++i) {
    const StepShape step = alike(tokens, keys, i);
    cost->observe(step, took(step, i));
    book.observe(step, took(step, i));
    for (const StepShape& other : {learned_shape(1, 0), learned_shape(1, 50'000), learned_shape(500, 0)}) {
      const double expected = std::max(1e-6, book.seconds(other));
      ASSERT_NEAR(cost->step_seconds(other) / expected, 1, 1e-6) << tokens << " " << keys << " " << i;
    }
  }
}

TEST(LearnedCostBook, IdenticalSmallSteps) { compare(1, 100, 600); }
TEST(LearnedCostBook, IdenticalStepsOfManyTokens) { compare(800, 800, 600); }
TEST(LearnedCostBook, IdenticalStepsOfManyKeys) { compare(8, 90'000, 600); }

TEST(LearnedCostBook, VariancesAreBounded) {
  Textbook bounded(true), free(false);
  for (int i = 0; i < 200; ++i) {
    const StepShape step = alike(800, 90'000, i);
    bounded.observe(step, took(step, i)), free.observe(step, took(step, i));
  }
  EXPECT_GT(std::fabs(bounded.seconds(learned_shape(1, 0)) / free.seconds(learned_shape(1, 0)) - 1), 1e-5)
      << "the bound is never reached with these steps";
}

}  // namespace
}  // namespace millrace
