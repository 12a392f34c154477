#include <fmt/format.h>

#include <algorithm>

#include "picture/panel_drawing.h"

namespace millrace {
namespace {

constexpr double kLineSwatch = 28, kMarkSwatch = 12, kSwatchGap = 7, kEntryGap = 20, kLegendRow = 21, kBelowHead = 9;
constexpr TextStyle kTitleStyle{.size = kPanelTitleSize, .bold = true};
constexpr TextStyle kLegendStyle{.size = kTextSize};

TextStyle title_style(double width) {
  TextStyle style = kTitleStyle;
  style.max_width = width;
  style.max_lines = 2;
  return style;
}

TextStyle legend_style(double width) {
  TextStyle style = kLegendStyle;
  style.max_width = width - kLineSwatch - kSwatchGap;
  return style;
}

double swatch_width(const ChartSeries& series) {
  const bool mark = series.mark == ChartMark::bars || series.mark == ChartMark::limits ||
                    (series.mark == ChartMark::points && !series.joined);
  return mark ? kMarkSwatch : kLineSwatch;
}

void draw_swatch(Pen& pen, const Palette& palette, const ChartSeries& series, double x, double y) {
  const Colour colour = series_colour(palette, series.sign);
  const double wide = swatch_width(series), middle = x + wide / 2;
  pen.set_colour(colour);
  switch (series.mark) {
    case ChartMark::line:
    case ChartMark::steps:
      pen.set_line(series.sign < 0 ? 1.4 : kLineWidth, series_dashes(series.sign));
      return pen.line(x, y, x + wide, y);
    case ChartMark::dots:
      return pen.dots(std::vector<Corner>{{middle - 8, y + 2}, {middle, y - 2}, {middle + 8, y + 1}}, 1.7);
    case ChartMark::bars: return pen.box(x, y - 6, wide, 12);
    case ChartMark::limits: pen.set_line(2.5); return pen.line(middle, y - 7, middle, y + 7);
    case ChartMark::points:
      if (series.joined) {
        pen.set_line(1.4);
        pen.line(x, y, x + wide, y);
      }
      return pen.marker(series_marker(series.sign), middle, y, kMarkerRadius, colour, series.hollow, palette.paper);
  }
}

}  // namespace

PanelHead::PanelHead(const Pen& pen, const ChartPanel& panel, double width) : panel_(panel), width_(width) {
  if (!panel.title.empty()) title_height_ = pen.measure(panel.title, title_style(width)).height + 4;
  height_ = title_height_;
  double x = 0;
  for (const ChartSeries& series : panel.series) {
    if (panel.names != SeriesNames::legend || series.name.empty() || series.points.empty()) continue;
    const double wide = swatch_width(series) + kSwatchGap + pen.measure(series.name, legend_style(width)).width;
    if (entries_.empty() || x + wide > width) x = 0, height_ += kLegendRow;
    entries_.push_back({&series, x, height_ - kLegendRow / 2});
    x += wide + kEntryGap;
  }
  if (height_ > 0) height_ += kBelowHead;
}

void PanelHead::draw(Pen& pen, const Palette& palette, double x, double y, double height) const {
  const double top = y + height - height_;
  if (title_height_ > 0) pen.text(x, y, panel_.title, title_style(width_), palette.ink);
  for (const Entry& entry : entries_) {
    draw_swatch(pen, palette, *entry.series, x + entry.x, top + entry.y);
    pen.text(x + entry.x + swatch_width(*entry.series) + kSwatchGap, top + entry.y, entry.series->name,
             legend_style(width_), palette.ink, Across::left, Down::middle);
  }
}

std::string axis_text(const ChartAxis& axis, bool upright) {
  std::string text = axis.title;
  if (!axis.unit.empty()) text += (text.empty() ? "" : ", ") + axis.unit;
  if (axis.better == BetterEnd::none) return text;
  const bool high = axis.better == BetterEnd::high;
  const char* words = high ? "higher is better" : "lower is better";
  // Along the y axis the text runs upwards, and so does an arrow to the right.
  const bool forward = high || (upright && axis.better_at_top);
  return forward ? fmt::format("{}  ({} \xe2\x86\x92)", text, words)
                 : fmt::format("{}  (\xe2\x86\x90 {})", text, words);
}

}  // namespace millrace
