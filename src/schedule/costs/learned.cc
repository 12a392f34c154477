// Learns seconds = a + b * tokens + c * keys from the steps that ran, by recursive least squares with slow forgetting.
// Steps are weighted by 1 / tokens, so that a few large prompts do not drown out the cost of decoding. Until the first
// steps it returns rough figures for a small model on a small machine; no important decision depends on them.
#include <algorithm>
#include <array>
#include <cmath>

#include "schedule/cost_model.h"

namespace millrace {
namespace {

constexpr double kForget = 0.998;
constexpr double kUnsure = 1e4;  // initial variance
constexpr double kSwapTokensPerSecond = 1e5;
constexpr double kLoadTokensPerSecond = 1e4;  // until a load was observed
constexpr double kLoadOverhead = 2e-4;        // seconds per load
constexpr double kLoadForget = 1e-3;          // per step: one slow load must not prevent all later ones
constexpr double kLoadMemory = 0.75;          // weight of the old estimate when a load is observed

class LearnedCost final : public CostModel {
 public:
  LearnedCost() {
    for (size_t i = 0; i < 3; ++i) covariance_[i][i] = kUnsure;
  }

  double step_seconds(const StepShape& shape) const override {
    const auto x = features(shape);
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) sum += std::max(0.0, weights_[i]) * x[i];
    return std::max(1e-6, sum);
  }
  double swap_seconds(int64_t tokens) const override { return static_cast<double>(tokens) / kSwapTokensPerSecond; }

  double load_seconds(int64_t tokens) const override {
    return kLoadOverhead + static_cast<double>(tokens) * seconds_per_loaded_token_;
  }

  void observe_load(int64_t tokens, double seconds) override {
    if (tokens < 1) return;
    const double seen = std::max(0.0, seconds - kLoadOverhead) / static_cast<double>(tokens);
    seconds_per_loaded_token_ = kLoadMemory * seconds_per_loaded_token_ + (1 - kLoadMemory) * seen;
  }

  void observe(const StepShape& shape, double seconds) override {
    if (shape.tokens == 0) return;
    seconds_per_loaded_token_ += kLoadForget * (1 / kLoadTokensPerSecond - seconds_per_loaded_token_);
    auto x = features(shape);
    const double weight = 1.0 / static_cast<double>(shape.tokens);
    std::array<double, 3> gain{};
    double scale = kForget / weight, predicted = 0;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) gain[i] += covariance_[i][j] * x[j];
      scale += gain[i] * x[i];
      predicted += weights_[i] * x[i];
    }
    for (size_t i = 0; i < 3; ++i) weights_[i] += gain[i] / scale * (seconds - predicted);
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j) updated_[i][j] = (covariance_[i][j] - gain[i] * gain[j] / scale) / kForget;
    covariance_ = updated_;
    bound_covariance();
  }

 private:
  using Matrix = std::array<std::array<double, 3>, 3>;
  // Scaled so that the three have similar magnitude.
  static std::array<double, 3> features(const StepShape& shape) {
    return {1.0, shape.whole_tokens() * 1e-2, static_cast<double>(shape.keys) * 1e-4};
  }
  // Identical steps add no information, and forgetting would let the variances grow without bound. Scales a row
  // together with its column: limiting only the diagonal would make the matrix invalid as a covariance, and the next
  // different step would throw the weights off.
  void bound_covariance() {
    for (size_t i = 0; i < 3; ++i) {
      if (covariance_[i][i] <= kUnsure) continue;
      const double shrink = std::sqrt(kUnsure / covariance_[i][i]);
      for (size_t j = 0; j < 3; ++j) {
        covariance_[i][j] *= shrink;
        covariance_[j][i] *= shrink;
      }
    }
  }
  std::array<double, 3> weights_ = {5e-3, 1e-1, 1e-3};
  double seconds_per_loaded_token_ = 1 / kLoadTokensPerSecond;
  Matrix covariance_{}, updated_{};
};

}  // namespace

std::unique_ptr<CostModel> make_learned_cost() { return std::make_unique<LearnedCost>(); }

}  // namespace millrace
