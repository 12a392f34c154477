#include "compare/compare_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace {
namespace {

constexpr int kWide = 960, kPanelTop = 64, kPanelHeight = 300, kLegendTop = kPanelTop + kPanelHeight + 66, kRow = 18;
constexpr double kLogFrom = 8;  // ratio of the largest to the least value from which an axis is logarithmic
constexpr Colour kText{40, 40, 40}, kFaint{228, 228, 228}, kFrame{150, 150, 150}, kOnFront{30, 100, 190},
    kOffFront{160, 165, 170}, kFrontLine{150, 185, 225}, kBack{255, 255, 255};

struct AxisSpan {
  double low = INFINITY, high = -INFINITY;
  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
};

// A scale from values to pixels.
struct AxisScale {
  double low = 0, high = 1;  // logarithms if `log`
  double from = 0, to = 1;
  bool log = false;

  double at(double value) const {
    const double v = log ? std::log10(std::max(value, 1e-300)) : value;
    return from + (to - from) * (v - low) / (high - low);
  }
};

AxisScale make_scale(const AxisSpan& span, double from, double to) {
  AxisScale out{.from = from, .to = to};
  out.log = span.low > 0 && span.high / span.low > kLogFrom;
  const double low = out.log ? std::log10(span.low) : span.low, high = out.log ? std::log10(span.high) : span.high;
  const double margin = high > low ? (high - low) * 0.08 : std::max(std::abs(high) * 0.05, 1e-9);
  out.low = low - margin;
  out.high = high + margin;
  return out;
}

std::vector<double> ticks_of(const AxisScale& scale) {
  std::vector<double> out;
  if (scale.log) {
    for (double power = std::floor(scale.low); power <= scale.high; ++power)
      for (const double factor : {1.0, 2.0, 5.0})
        if (const double at = power + std::log10(factor); at >= scale.low && at <= scale.high)
          out.push_back(std::pow(10, power) * factor);
    return out;
  }
  const double step = round_step(scale.high - scale.low, 4);
  for (double i = std::ceil(scale.low / step); i * step <= scale.high; ++i) out.push_back(i * step);
  return out;
}

struct FrontPoint {
  size_t config = 0;
  Interval x, y;
  bool front = false;
};

struct FrontPanel {
  std::string x_label;
  bool more_x_is_better = true;
  double left = 0, right = 0;
  std::vector<FrontPoint> points;
};

struct LabelBox {
  double left, top, right, bottom;
  bool meets(const LabelBox& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

void draw_axes(Picture& picture, const FrontPanel& panel, const AxisScale& x, const AxisScale& y) {
  const double top = kPanelTop, bottom = kPanelTop + kPanelHeight;
  for (const double value : ticks_of(y)) {
    picture.line(panel.left, y.at(value), panel.right, y.at(value), 1, kFaint);
    picture.text(panel.left - 6, y.at(value) + 4, fmt::format("{:g}", value), kText, TextAnchor::end);
  }
  double free_from = -INFINITY;
  for (const double value : ticks_of(x)) {
    picture.line(x.at(value), top, x.at(value), bottom, 1, kFaint);
    const std::string label = fmt::format("{:g}", value);
    if (const double half = Picture::text_width(label) / 2 + 4; x.at(value) - half > free_from) {
      picture.text(x.at(value), bottom + 18, label, kText, TextAnchor::middle);
      free_from = x.at(value) + half;
    }
  }
  picture.line(panel.left, top, panel.left, bottom, 1.5, kFrame);
  picture.line(panel.left, bottom, panel.right, bottom, 1.5, kFrame);
  picture.text((panel.left + panel.right) / 2, bottom + 38, panel.x_label, kText, TextAnchor::middle);
}

// The best of the two axes alone, as steps.
void draw_front_line(Picture& picture, const FrontPanel& panel, const AxisScale& x, const AxisScale& y,
                     bool more_y_is_better) {
  const auto better_x = [&](double a, double b) { return panel.more_x_is_better ? a > b : a < b; };
  const auto better_y = [&](double a, double b) { return more_y_is_better ? a > b : a < b; };
  std::vector<const FrontPoint*> front;
  for (const FrontPoint& own : panel.points)
    if (std::ranges::none_of(panel.points, [&](const FrontPoint& other) {
          const bool worse = better_x(own.x.value, other.x.value) || better_y(own.y.value, other.y.value);
          return !worse && (better_x(other.x.value, own.x.value) || better_y(other.y.value, own.y.value));
        }))
      front.push_back(&own);
  std::ranges::sort(front, {}, [](const FrontPoint* point) { return point->x.value; });
  for (size_t i = 1; i < front.size(); ++i)
    picture.line(x.at(front[i - 1]->x.value), y.at(front[i - 1]->y.value), x.at(front[i]->x.value),
                 y.at(front[i]->y.value), 2, kFrontLine);
}

// Each number beside its dot, where it meets neither a dot nor another number.
void draw_numbers(Picture& picture, const FrontPanel& panel, const AxisScale& x, const AxisScale& y) {
  std::vector<LabelBox> taken;
  for (const FrontPoint& p : panel.points)
    taken.push_back({x.at(p.x.value) - 5, y.at(p.y.value) - 5, x.at(p.x.value) + 5, y.at(p.y.value) + 5});
  for (const FrontPoint& p : panel.points) {
    const std::string label = std::to_string(p.config + 1);
    const double width = Picture::text_width(label), px = x.at(p.x.value), py = y.at(p.y.value);
    constexpr std::array<std::array<double, 2>, 8> kPlaces = {
        {{9, -4}, {9, 14}, {-9, -4}, {-9, 14}, {16, 4}, {-16, 4}, {0, -12}, {0, 22}}};
    LabelBox best{};
    std::array<double, 2> place = kPlaces[0];
    for (const auto& candidate : kPlaces) {
      const double left = px + candidate[0] - (candidate[0] < 0 ? width : candidate[0] > 0 ? 0 : width / 2);
      const LabelBox box{left - 1, py + candidate[1] - Picture::kTextHeight - 1, left + width + 1,
                         py + candidate[1] + 1};
      const bool free = std::ranges::none_of(taken, [&](const LabelBox& other) { return other.meets(box); });
      if (free || &candidate == &kPlaces[0]) best = box, place = candidate;
      if (free) break;
    }
    taken.push_back(best);
    picture.text(best.left + 1, py + place[1], label, p.front ? kOnFront : kText);
  }
}

void draw_panel(Picture& picture, const FrontPanel& panel, bool more_y_is_better) {
  AxisSpan x_span, y_span;
  for (const FrontPoint& p : panel.points) {
    for (const double v : {p.x.value, p.x.low, p.x.high}) x_span.add(v);
    for (const double v : {p.y.value, p.y.low, p.y.high}) y_span.add(v);
  }
  if (panel.points.empty()) {
    picture.text((panel.left + panel.right) / 2, kPanelTop + kPanelHeight / 2.0, "not measured", kOffFront,
                 TextAnchor::middle);
    return;
  }
  const double bottom = kPanelTop + kPanelHeight, top = kPanelTop;
  const AxisScale x = make_scale(x_span, panel.left, panel.right);
  const AxisScale y = more_y_is_better ? make_scale(y_span, bottom, top) : make_scale(y_span, top, bottom);
  draw_axes(picture, panel, x, y);
  draw_front_line(picture, panel, x, y, more_y_is_better);
  for (const FrontPoint& p : panel.points) {
    const Colour colour = p.front ? kOnFront : kOffFront;
    picture.line(x.at(p.x.low), y.at(p.y.value), x.at(p.x.high), y.at(p.y.value), 1, colour);
    picture.line(x.at(p.x.value), y.at(p.y.low), x.at(p.x.value), y.at(p.y.high), 1, colour);
  }
  for (const FrontPoint& p : panel.points) {
    picture.disc(x.at(p.x.value), y.at(p.y.value), 5.5, p.front ? kOnFront : kOffFront);
    if (!p.front) picture.disc(x.at(p.x.value), y.at(p.y.value), 3.5, kBack);
  }
  draw_numbers(picture, panel, x, y);
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole characters
  return text.substr(0, end) + "...";
}

void draw_legend(Picture& picture, const CompareResult& result, const std::vector<bool>& front) {
  const size_t rows = (result.configs.size() + 1) / 2;
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const double x = i < rows ? 40 : kWide / 2.0 + 20, y = kLegendTop + kRow * static_cast<double>(i % rows);
    picture.disc(x, y - 4, 5, front[i] ? kOnFront : kOffFront);
    if (!front[i]) picture.disc(x, y - 4, 3, kBack);
    picture.text(x + 30, y, std::to_string(i + 1), kText, TextAnchor::end);
    picture.text(x + 40, y, shortened(result.configs[i].name, 62), kText);
  }
}

}  // namespace

Picture front_picture(const CompareResult& result, size_t figure) {
  const size_t rows = (result.configs.size() + 1) / 2;
  Picture picture(kWide, kLegendTop + kRow * static_cast<int>(rows) + 8);
  const std::vector<bool> front = pareto_front(result);
  FrontPanel speed{"decode, tokens/s (better: right)", true, 70, kWide / 2.0 - 20, {}};
  FrontPanel memory{"weights and KV, MB (better: left)", false, kWide / 2.0 + 60, kWide - 30, {}};
  std::string title = "speed and memory";
  bool more_is_better = true;
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const ConfigResult& config = result.configs[i];
    if (figure >= config.quality.size() || config.quality[figure].items == 0) continue;
    const SuiteFigure& of = config.quality[figure];
    title = of.suite == of.metric ? of.metric : of.suite + " " + of.metric;
    more_is_better = of.more_is_better;
    if (!config.decode.empty())
      speed.points.push_back({i, bootstrap_median(config.decode), of.paired, static_cast<bool>(front[i])});
    const double bytes = static_cast<double>(stored_bytes_of(config)) / 1e6;
    if (bytes > 0) memory.points.push_back({i, {bytes, bytes, bytes}, of.paired, static_cast<bool>(front[i])});
  }
  const char* const direction = more_is_better ? "higher is better" : "lower is better, and drawn higher";
  picture.text(20, 24, shortened(fmt::format("{} of {}: {}", title, result.model, direction), 150), kText);
  picture.text(
      20, 44,
      shortened(result.machine + "; vertical lines: 95 % of the difference from 1; full dots: the Pareto front", 150),
      kOffFront);
  draw_panel(picture, speed, more_is_better);
  draw_panel(picture, memory, more_is_better);
  draw_legend(picture, result, front);
  return picture;
}

std::optional<Picture> heat_map(const ConfigResult& config, const std::string& suite, const std::string& metric) {
  constexpr int kCell = 56, kCellHeight = 30, kLeft = 90, kTop = 60;
  constexpr Colour kNone{250, 235, 230}, kFull{40, 110, 180};
  std::vector<std::string> rows, columns;
  std::vector<std::pair<std::pair<size_t, size_t>, double>> cells;
  const auto place = [](std::vector<std::string>& in, const std::string& name) {
    const auto found = std::ranges::find(in, name);
    if (found != in.end()) return static_cast<size_t>(found - in.begin());
    in.push_back(name);
    return in.size() - 1;
  };
  for (const SuiteFigure& figure : config.quality) {
    const size_t at = figure.metric.find('@'), slash = figure.metric.find('/', at);
    if (figure.suite != suite || at == std::string::npos || slash == std::string::npos || figure.items == 0 ||
        figure.metric.substr(0, at) != metric)
      continue;
    const size_t column = place(columns, figure.metric.substr(at + 1, slash - at - 1));
    cells.push_back({{place(rows, figure.metric.substr(slash + 1)), column}, figure.interval.value});
  }
  if (cells.empty()) return std::nullopt;
  Picture out(std::max(kLeft + kCell * static_cast<int>(columns.size()) + 20, 330),
              kTop + kCellHeight * static_cast<int>(rows.size()) + 16);
  out.text(12, 20, shortened(config.name, 52), kText);
  out.text(12, 50, "depth", kOffFront);
  for (size_t i = 0; i < columns.size(); ++i)
    out.text(kLeft + kCell * (static_cast<double>(i) + 0.5), 50, columns[i], kText, TextAnchor::middle);
  for (size_t i = 0; i < rows.size(); ++i)
    out.text(kLeft - 10, kTop + kCellHeight * (static_cast<double>(i) + 0.65), rows[i], kText, TextAnchor::end);
  for (const auto& [at, value] : cells) {
    const double share = std::clamp(value, 0.0, 1.0);
    const auto mix = [&](uint8_t none, uint8_t full) {
      return static_cast<uint8_t>(std::lround(none + share * (full - none)));
    };
    const double x = kLeft + kCell * static_cast<double>(at.second),
                 y = kTop + kCellHeight * static_cast<double>(at.first);
    out.box(x, y, kCell - 2, kCellHeight - 2, {mix(kNone.r, kFull.r), mix(kNone.g, kFull.g), mix(kNone.b, kFull.b)});
    out.text(x + kCell / 2.0, y + kCellHeight * 0.62, fmt::format("{:.2f}", value), share > 0.5 ? kBack : kText,
             TextAnchor::middle);
  }
  return out;
}

}  // namespace millrace
