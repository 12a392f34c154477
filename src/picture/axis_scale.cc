#include "picture/axis_scale.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr double kLogFrom = 12;  // ratio of the largest to the smallest value from which an axis is logarithmic

// The smallest step of the form 1, 2 or 5 times a power of ten that divides `span` into at most `count` parts.
double round_step(double span, int count) {
  const double raw = span / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<double> log_ticks(const AxisScale& scale, int count) {
  const double decades = scale.high - scale.low;
  std::vector<double> out;
  if (decades < 1) {  // less than a power of ten: ticks as on a linear axis
    const double low = std::pow(10, scale.low), high = std::pow(10, scale.high), step = round_step(high - low, count);
    for (double i = std::ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); ++i)
      if (i > 0) out.push_back(i * step);
    return out;
  }
  const bool all = 3 * decades <= count;  // 1, 2 and 5 of each power
  const double stride = std::max(1.0, std::ceil(decades / count));
  for (double power = std::floor(scale.low); power <= scale.high; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      const bool kept = factor == 1 ? std::fmod(power, stride) == 0 : all;
      if (kept && at >= scale.low - 1e-9 && at <= scale.high + 1e-9) out.push_back(factor * std::pow(10, power));
    }
  return out;
}

}  // namespace

void AxisSpan::add(double value) {
  if (counts(value)) low = std::min(low, value), high = std::max(high, value);
}

double AxisScale::at(double value) const {
  const double place = log ? std::log10(value) : value;
  return from + (to - from) * std::clamp((place - low) / (high - low), 0.0, 1.0);
}

AxisScale make_axis_scale(const ChartAxis& axis, const AxisSpan& span, double margin, double from, double to) {
  AxisScale out{.from = from, .to = to};
  double low = axis.low.value_or(span.empty() ? 0 : span.low), high = axis.high.value_or(span.empty() ? 1 : span.high);
  if (axis.from_zero && !axis.low) low = std::min(low, 0.0);
  if (axis.from_zero && !axis.high) high = std::max(high, 0.0);
  const bool positive = low > 0 && high > 0;
  out.log = positive && (axis.scaling == AxisScaling::logarithmic ||
                         (axis.scaling == AxisScaling::automatic && !axis.from_zero && high / low > kLogFrom));
  if (out.log) low = std::log10(low), high = std::log10(high);
  if (!(high > low)) {  // one value: it is in the middle
    const double half = out.log ? 0.3 : high == 0 ? 1 : std::max(std::abs(high) * 0.1, 1e-12);
    if (!axis.low && !(axis.from_zero && low == 0)) low -= half;
    high = low + 2 * half;
  }
  const double room = (high - low) * margin;
  if (!axis.low && !(axis.from_zero && low == 0)) low -= room;
  if (!axis.high && !(axis.from_zero && high == 0)) high += room;
  out.low = low;
  out.high = high;
  if (axis.better == BetterEnd::low && axis.better_at_top) std::swap(out.from, out.to);
  return out;
}

std::vector<double> axis_ticks(const AxisScale& scale, int count) {
  count = std::max(count, 1);
  if (scale.log) return log_ticks(scale, count);
  const double step = round_step(scale.high - scale.low, count);
  const double first = std::ceil(scale.low / step - 1e-9), last = std::floor(scale.high / step + 1e-9);
  std::vector<double> out;
  // A span that is tiny next to its values has no ticks that doubles could distinguish.
  for (double i = first; i <= last && out.size() <= static_cast<size_t>(count); ++i) out.push_back(i * step);
  if (out.empty()) out.push_back((scale.low + scale.high) / 2);
  return out;
}

std::vector<std::string> tick_texts(const AxisScale& scale, const std::vector<double>& ticks) {
  double largest = 0, step = INFINITY;
  for (const double tick : ticks) largest = std::max(largest, std::abs(tick));
  for (size_t i = 1; i < ticks.size(); ++i) step = std::min(step, ticks[i] - ticks[i - 1]);
  if (ticks.size() < 2) step = largest > 0 && std::isfinite(largest) ? largest / 10 : 1;
  std::vector<std::string> out;
  const bool by_tick = scale.log && scale.high - scale.low >= 1;  // each with its own number of decimals
  for (const double tick : ticks) {
    const double size = by_tick ? std::abs(tick) : largest;
    const char* suffix = size >= 1e10 ? "G" : size >= 1e6 ? "M" : size >= 1e4 ? "k" : "";
    const double unit = size >= 1e10 ? 1e9 : size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1;
    if (by_tick || size >= 1e13 || (largest > 0 && largest < 1e-3)) {
      out.push_back(fmt::format("{:.4g}{}", tick == 0 ? 0.0 : tick / unit, tick == 0 ? "" : suffix));
      continue;
    }
    const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step / unit) - 1e-9)), 0, 9);
    out.push_back(fmt::format("{:.{}f}{}", tick == 0 ? 0.0 : tick / unit, decimals, tick == 0 ? "" : suffix));
  }
  return out;
}

}  // namespace millrace
