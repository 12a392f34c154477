#include "compress/rounding/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "formats/block.h"

namespace millrace {
namespace {

constexpr int kSymmetricSteps = 16;
constexpr int kAffineSteps = 5;
constexpr int kImprovements = 3;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The fewer levels there are, the more of a range may be clipped.
double largest_clip(int levels) { return levels <= 8 ? 0.5 : levels <= 16 ? 0.4 : levels <= 32 ? 0.25 : 0.12; }

}  // namespace

ScaleSearch::ScaleSearch(const Format& format)
    : format_(&format),
      layout_(find_scale_layout(format)),
      group_values_(format.block_values / layout_->groups),
      has_minimum_(layout_->most_minimum > 0),
      clip_(largest_clip(format.levels)),
      levels_(static_cast<size_t>(format.levels)),
      fits_(static_cast<size_t>(layout_->groups)),
      decoded_(static_cast<size_t>(format.block_values)),
      plain_(static_cast<size_t>(format.block_bytes)) {
  const std::vector<float> units = level_units(format, *layout_);
  std::iota(levels_.begin(), levels_.end(), 0);
  std::ranges::stable_sort(levels_, {}, [&](int level) { return units[static_cast<size_t>(level)]; });
  uniform_ = true;
  for (int level : levels_) {
    const double unit = units[static_cast<size_t>(level)];
    if (!units_.empty()) {
      middles_.push_back((units_.back() + unit) / 2);
      uniform_ &= unit == units_.back() + 1;
    }
    units_.push_back(unit);
  }
}

int ScaleSearch::nearest(double unit) const {
  if (uniform_) return static_cast<int>(std::clamp(unit - units_.front(), 0.0, units_.back() - units_.front()) + 0.5);
  return static_cast<int>(std::ranges::lower_bound(middles_, unit) - middles_.begin());
}

double ScaleSearch::measure(int group, Fit fit) const {
  const double inverse = fit.scale != 0 ? 1 / fit.scale : 0;
  double error = 0;
  for (int i = group * group_values_; i < (group + 1) * group_values_; ++i) {
    const double unit = units_[static_cast<size_t>(nearest((values_[i] + fit.minimum) * inverse))];
    const double difference = fit.scale * unit - fit.minimum - values_[i];
    error += weights_[i] * difference * difference;
  }
  return error;
}

ScaleSearch::Sums ScaleSearch::sums(int group, Fit fit) const {
  const double inverse = fit.scale != 0 ? 1 / fit.scale : 0;
  Sums out;
  for (int i = group * group_values_; i < (group + 1) * group_values_; ++i) {
    const double w = weights_[i], x = values_[i];
    const double unit = units_[static_cast<size_t>(nearest((x + fit.minimum) * inverse))];
    out.w += w;
    out.wu += w * unit;
    out.wuu += w * unit * unit;
    out.wx += w * x;
    out.wux += w * unit * x;
    out.wxx += w * x * x;
  }
  return out;
}

// The scale and minimum of least error for these levels; false: there are none that the format can have.
bool ScaleSearch::refit(const Sums& s, Fit& fit) const {
  if (!(s.wuu > 0)) return false;
  const double determinant = s.w * s.wuu - s.wu * s.wu;
  Fit out{s.wux / s.wuu, 0};
  if (has_minimum_ && determinant > 1e-12 * s.w * s.wuu) {
    const Fit both{(s.w * s.wux - s.wu * s.wx) / determinant, (s.wu * s.wux - s.wuu * s.wx) / determinant};
    if (layout_->free_minimum || both.minimum >= 0) out = both;  // otherwise zero is the nearest
  }
  if (has_minimum_ && !(out.scale > 0)) return false;
  if (out.scale == 0 || !std::isfinite(1 / out.scale)) return false;
  fit = out;
  return true;
}

double ScaleSearch::error_of(const Sums& s, Fit fit) {
  const double a = fit.scale, m = fit.minimum;
  return a * a * s.wuu - 2 * a * m * s.wu - 2 * a * s.wux + m * m * s.w + 2 * m * s.wx + s.wxx;
}

// Levels and scales in turns, as long as the error falls.
ScaleSearch::Fit ScaleSearch::improve(int group, Fit fit) const {
  double error = measure(group, fit);
  for (int i = 0; i < kImprovements; ++i) {
    Fit next = fit;
    if (!refit(sums(group, fit), next)) break;
    const double found = measure(group, next);
    if (!(found < error)) break;
    error = found;
    fit = next;
  }
  return fit;
}

ScaleSearch::Fit ScaleSearch::fit_symmetric(int group) const {
  const double largest = largest_signed(values_ + group * group_values_, group_values_);
  Fit best;
  double error = kInfinity;
  for (const double end : {units_.front(), units_.back()})
    for (int i = 0; largest != 0 && end != 0 && i < kSymmetricSteps; ++i) {
      Fit fit{largest / end * (1.05 - clip_ * i / (kSymmetricSteps - 1)), 0};
      if (!std::isfinite(1 / fit.scale)) continue;
      const Sums found = sums(group, fit);
      if (!refit(found, fit) || !(error_of(found, fit) < error)) continue;
      error = error_of(found, fit);
      best = fit;
    }
  return improve(group, best);
}

ScaleSearch::Fit ScaleSearch::fit_affine(int group) const {
  const float* x = values_ + group * group_values_;
  double low = *std::min_element(x, x + group_values_);
  const double high = *std::max_element(x, x + group_values_);
  if (!layout_->free_minimum) low = std::min(low, 0.0);
  const double range = high - low, steps = units_.back() - units_.front();
  Fit best{0, -low};
  double error = measure(group, best);
  for (int a = 0; a < kAffineSteps; ++a)
    for (int b = 0; b < kAffineSteps; ++b) {
      const double part = clip_ / 2 / (kAffineSteps - 1);
      Fit fit{range * (1 - part * (a + b)) / steps, -(low + range * part * a)};
      if (!(fit.scale > 0) || !std::isfinite(1 / fit.scale)) continue;
      const Sums found = sums(group, fit);
      if (!refit(found, fit) || !(error_of(found, fit) < error)) continue;
      error = error_of(found, fit);
      best = fit;
    }
  return improve(group, best);
}

ScaleSearch::Fit ScaleSearch::fit_group(int group) const {
  return has_minimum_ ? fit_affine(group) : fit_symmetric(group);
}

// For d or dmin, so that the largest scale or minimum of the groups has about the largest level.
std::vector<double> ScaleSearch::candidates(bool minimum) const {
  double largest = 0;
  for (const Fit& fit : fits_) {
    const double value = minimum ? fit.minimum : fit.scale;
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  }
  if (minimum && !has_minimum_) return {0.0};
  if (layout_->power_of_two) return {largest / 2, largest, largest * 2};
  if (!layout_->sub_scales()) return {largest};
  std::vector<double> out;
  const double most = minimum ? layout_->most_minimum : layout_->most_scale;
  for (const double part : {0.87, 0.94, 1.0, 1.06}) {
    out.push_back(largest / most * part);
    if (!minimum && layout_->least_scale < 0) out.push_back(largest / layout_->least_scale * part);
  }
  return out;
}

// The sub-scale and sub-minimum of a group that leave the least error under d and dmin.
void ScaleSearch::choose_group(int group, LevelScales& scales, double& error) const {
  const auto around = [](double value, double unit, int low, int high) {
    const double place = unit != 0 ? std::clamp(value / unit, -1000.0, 1000.0) : 0;
    return std::clamp(static_cast<int>(std::lround(place)), low, high);
  };
  const Fit& fit = fits_[static_cast<size_t>(group)];
  const int low = layout_->least_scale, high = layout_->most_scale;
  const int least_minimum = layout_->free_minimum ? 1 : 0, most_minimum = layout_->most_minimum;
  const int scale = around(fit.scale, scales.d, low, high);
  const int minimum = around(fit.minimum, scales.dmin, std::min(least_minimum, most_minimum), most_minimum);
  double best = kInfinity;
  for (int s = std::max(low, scale - 1); s <= std::min(high, scale + 1); ++s)
    for (int m = std::max(least_minimum, minimum - 1);
         m <= std::max(least_minimum, std::min(most_minimum, minimum + 1)); ++m) {
      const double found = measure(group, {double{scales.d} * s, double{scales.dmin} * m});
      if (!(found < best)) continue;
      best = found;
      scales.scale[group] = s;
      scales.minimum[group] = m;
    }
  error += best;
}

double ScaleSearch::evaluate(LevelScales& scales) const {
  double error = 0;
  for (int g = 0; g < layout_->groups; ++g) choose_group(g, scales, error);
  return error;
}

// d and dmin of least error for the levels, sub-scales and sub-minimums as they are. False: they cannot change.
bool ScaleSearch::refine(LevelScales& scales) const {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  for (int g = 0; g < layout_->groups; ++g) {
    const Sums s = sums(g, {double{scales.d} * scales.scale[g], double{scales.dmin} * scales.minimum[g]});
    const double a = scales.scale[g], b = -scales.minimum[g];
    aa += a * a * s.wuu;
    ab += a * b * s.wu;
    bb += b * b * s.w;
    ax += a * s.wux;
    bx += b * s.wx;
  }
  if (!(aa > 0)) return false;
  double d = ax / aa, dmin = 0;
  if (const double determinant = aa * bb - ab * ab; determinant > 1e-12 * aa * bb) {
    d = (bb * ax - ab * bx) / determinant;
    dmin = (aa * bx - ab * ax) / determinant;
  } else if (bb > 0) {
    return false;
  }
  const LevelScales before = scales;
  scales.d = storable_scale(*layout_, d);
  scales.dmin = storable_scale(*layout_, dmin);
  return scales.d != before.d || scales.dmin != before.dmin;
}

void ScaleSearch::store(const LevelScales& scales, uint8_t* block) const {
  layout_->store(scales, block);
  for (int i = 0; i < format_->block_values; ++i) {
    const int g = i / group_values_;
    const double scale = double{scales.d} * scales.scale[g], minimum = double{scales.dmin} * scales.minimum[g];
    const int place = nearest(scale != 0 ? (values_[i] + minimum) / scale : 0);
    format_->set_level(block, i, levels_[static_cast<size_t>(place)]);
  }
}

double ScaleSearch::stored_error(const uint8_t* block) {
  format_->decode(block, decoded_.data(), format_->block_values);
  double error = 0;
  for (int i = 0; i < format_->block_values; ++i) {
    const double difference = double{values_[i]} - decoded_[static_cast<size_t>(i)];
    error += weights_[i] * difference * difference;
  }
  return error;
}

double ScaleSearch::choose(const float* values, const double* weights, uint8_t* block) {
  values_ = values;
  weights_ = weights;
  format_->encode(values, plain_.data(), format_->block_values);
  const double plain = stored_error(plain_.data());
  std::copy(plain_.begin(), plain_.end(), block);
  if (plain == 0) return 0;
  for (int g = 0; g < layout_->groups; ++g) fits_[static_cast<size_t>(g)] = fit_group(g);
  LevelScales best;
  double error = kInfinity;
  for (const double d : candidates(false))
    for (const double dmin : candidates(true)) {
      LevelScales scales{.d = storable_scale(*layout_, d), .dmin = storable_scale(*layout_, dmin)};
      const double found = evaluate(scales);
      if (!(found < error)) continue;
      error = found;
      best = scales;
    }
  LevelScales next = best;
  for (int i = 0; i < kImprovements && refine(next); ++i) {
    const double found = evaluate(next);
    if (!(found < error)) break;
    error = found;
    best = next;
  }
  store(best, block);
  const double searched = stored_error(block);
  if (searched <= plain) return searched;
  std::copy(plain_.begin(), plain_.end(), block);
  return plain;
}

}  // namespace millrace
