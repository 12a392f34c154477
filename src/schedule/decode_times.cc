#include "schedule/decode_times.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kMaxWeight = 16;    // weight of the past: steps of as many tokens
constexpr double kForgotten = 1024;  // steps after which one counts no longer
constexpr double kMinSeen = 0.05;    // least weight of a neighbour
constexpr double kLongestStall = 3;  // a stop of the machine counts as so many times the expected time

double model_seconds(const CostModel& cost, double tokens) {
  const auto count = std::max<int64_t>(1, std::llround(tokens));
  return cost.step_seconds({.tokens = count, .outputs = count, .keys = 0, .pairs = 0});
}

}  // namespace

size_t DecodeTimes::index(int64_t tokens) {
  if (tokens <= kExact) return static_cast<size_t>(std::max<int64_t>(0, tokens));
  const double octaves = std::log2(static_cast<double>(tokens) / kExact);
  return static_cast<size_t>(kExact + std::min(kPerOctave * kOctaves, static_cast<int>(octaves * kPerOctave) + 1));
}

double DecodeTimes::weight(const Seen& seen) const {
  return seen.weight * std::max(0.0, 1 - static_cast<double>(steps_ - seen.at) / kForgotten);
}

void DecodeTimes::observe(int64_t tokens, double seconds, const CostModel& cost) {
  const double expected = this->seconds(tokens, cost);
  Seen& seen = seen_[index(tokens)];
  const double before = std::min(weight(seen), kMaxWeight);
  if (steps_ > 0) seconds = std::min(seconds, kLongestStall * expected);
  seen.seconds = (before * seen.seconds + seconds) / (before + 1);
  seen.tokens = (before * seen.tokens + static_cast<double>(tokens)) / (before + 1);
  seen.weight = before + 1;
  seen.at = ++steps_;
}

double DecodeTimes::seconds(int64_t tokens, const CostModel& cost) const {
  const size_t here = index(tokens);
  const auto count = static_cast<double>(tokens);
  const Seen *below = nullptr, *above = nullptr;
  for (size_t i = here; i-- > 0 && !below;)
    if (weight(seen_[i]) > kMinSeen) below = &seen_[i];
  for (size_t i = here + 1; i < seen_.size() && !above; ++i)
    if (weight(seen_[i]) > kMinSeen) above = &seen_[i];
  const double own = weight(seen_[here]);
  double filled = model_seconds(cost, count);
  if (below && above) {
    filled =
        below->seconds + (above->seconds - below->seconds) * (count - below->tokens) / (above->tokens - below->tokens);
  } else if (below || above) {
    const Seen& near = below ? *below : *above;
    const double growth = filled - model_seconds(cost, near.tokens);
    filled = std::max(near.seconds + growth, near.seconds / 2);
  } else if (own > 0) {
    filled = seen_[here].seconds;
  }
  const double part = std::min(1.0, own);
  return part * seen_[here].seconds + (1 - part) * filled;
}

}  // namespace millrace
