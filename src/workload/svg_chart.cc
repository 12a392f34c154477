#include "workload/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kWidth = 620, kHeight = 240, kLeft = 64, kRight = 14, kTop = 34, kBottom = 40;
constexpr size_t kMaxPoints = 4000;  // per series; larger ones are thinned

// The largest of 1, 2, 5 times a power of ten that gives about `count` steps.
double tick_step(double span, double count) {
  const double raw = span / count, base = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * base) return factor * base;
  return 10 * base;
}

struct Axis {
  double max = 1;
  double from, to;  // pixels
  double at(double value) const { return from + (to - from) * value / max; }
};

}  // namespace

std::string html_escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string SvgChart::svg() const {
  Axis x{0, kLeft, kWidth - kRight}, y{0, kHeight - kBottom, kTop};
  for (const auto& one : series)
    for (const auto& [px, py] : one.points) x.max = std::max(x.max, px), y.max = std::max(y.max, py);
  if (x.max <= 0) x.max = 1;
  y.max = y.max > 0 ? y.max * 1.05 : 1;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n<text class=\"title\" x=\"{}\" "
      "y=\"16\">{}</text>\n",
      kWidth, kHeight, html_escape(title), kLeft, html_escape(title));
  for (double v = 0, step = tick_step(y.max, 4); v <= y.max; v += step) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/><text class=\"tick\" text-anchor=\"end\" x=\"{:.1f}\" "
        "y=\"{:.1f}\">{:g}</text>\n",
        x.from, y.at(v), x.to, x.from - 6, y.at(v) + 4, v);
  }
  for (double v = 0, step = tick_step(x.max, 6); v <= x.max; v += step)
    out += fmt::format("<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", x.at(v),
                       kHeight - kBottom + 16, v);
  out += fmt::format("<text class=\"tick\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x.to,
                     kHeight - 8, html_escape(x_label));
  out += fmt::format("<text class=\"tick\" x=\"4\" y=\"{:.1f}\">{}</text>\n", kTop - 6, html_escape(y_label));
  double legend = x.to;
  for (size_t i = series.size(); i-- > 0;) {
    const SvgSeries& one = series[i];
    const size_t stride = (one.points.size() + kMaxPoints - 1) / kMaxPoints;
    std::string path;
    for (size_t p = 0; p < one.points.size(); p += std::max<size_t>(stride, 1)) {
      const double px = x.at(one.points[p].first), py = y.at(one.points[p].second);
      path += one.dots ? fmt::format("M{:.1f} {:.1f}h0", px, py)
                       : fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    }
    if (!path.empty()) out += fmt::format("<path class=\"s{}{}\" d=\"{}\"/>\n", i, one.dots ? " dots" : "", path);
    out += fmt::format("<text class=\"legend s{}t\" text-anchor=\"end\" x=\"{:.1f}\" y=\"16\">{}</text>\n", i, legend,
                       html_escape(one.name));
    legend -= 12 + 7 * static_cast<double>(one.name.size());
  }
  return out + "</svg>\n";
}

}  // namespace millrace
