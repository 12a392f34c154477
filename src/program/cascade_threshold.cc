#include "program/cascade_threshold.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace {
namespace {

constexpr double kAlways = 2;            // above every confidence
constexpr double kRounding = 1e-9;       // of sums of scores
constexpr double kThresholdSteps = 1e4;  // thresholds are multiples of 1 / this, so that they can be typed

}  // namespace

CascadeChoice cascade_with(std::span<const CascadeSample> samples, double threshold) {
  CascadeChoice out{.threshold = threshold};
  for (const CascadeSample& sample : samples) {
    const bool asks = sample.confidence < threshold;
    out.score += asks ? sample.large_score : sample.small_score;
    out.cost += sample.small_cost + (asks ? sample.large_cost : 0);
    out.asked += asks ? 1 : 0;
  }
  const auto count = static_cast<double>(samples.size());
  out.score /= count;
  out.cost /= count;
  out.asked /= count;
  return out;
}

CascadeChoice learn_threshold(std::span<const CascadeSample> samples, double loss) {
  std::vector<double> thresholds = {0, kAlways};
  for (const CascadeSample& sample : samples)
    thresholds.push_back((std::floor(sample.confidence * kThresholdSteps) + 1) / kThresholdSteps);
  std::ranges::sort(thresholds);
  const double least = cascade_with(samples, kAlways).score - loss - kRounding;
  CascadeChoice best = cascade_with(samples, kAlways);
  for (const double threshold : thresholds) {
    const CascadeChoice one = cascade_with(samples, threshold);
    if (one.score < least) continue;
    if (one.cost < best.cost || (one.cost == best.cost && one.score > best.score)) best = one;
  }
  return best;
}

}  // namespace millrace
