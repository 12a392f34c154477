// A panel with two axes: lines, points with names, or bars by category.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/axis_scale.h"
#include "picture/panel_drawing.h"
#include "picture/point_names.h"

namespace millrace {
namespace {

constexpr double kTickGap = 7, kTitleRow = 23, kTickRow = 22, kEndNames = 50, kEndSample = 24, kBar = 15,
                 kBetweenCategories = 12;
constexpr double kPerXTick = 62, kPerYTick = 36;
constexpr size_t kMaxPoints = 2000;  // of a line or of dots; more are thinned
constexpr TextStyle kTickStyle{.size = kTickSize};

bool by_category(const ChartSeries& series) {
  return series.mark == ChartMark::bars || series.mark == ChartMark::limits;
}

std::string bar_text(double value) {
  return std::abs(value) >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

class AxesDrawing : public PanelDrawing {
 public:
  AxesDrawing(const Pen& pen, const Palette& palette, const ChartPanel& panel, double width, double plot_height)
      : palette_(palette), panel_(panel), head_(pen, panel, width), width_(width), height_(plot_height) {
    for (const ChartSeries& series : panel.series) bars_ += series.mark == ChartMark::bars;
    const double rows = static_cast<double>(panel.categories.size());
    if (!panel.categories.empty()) height_ = rows * (kBar * std::max(bars_, 1) + kBetweenCategories);
    make_scales();
    measure_sides(pen);
    x_.from = left_, x_.to = width_ - right_;
    x_ticks_ = axis_ticks(x_, static_cast<int>((x_.to - x_.from) / kPerXTick));
    names_.emplace(pen, panel_, x_, y_, PlacedBox{left_, 0, width_ - right_, height_});
  }

  double head_height() const override { return head_.height(); }
  double plot_height() const override { return height_; }
  double foot_height() const override {
    return kTickRow + (axis_text(panel_.x, false).empty() ? 0 : kTitleRow) + names_->key_height();
  }

  void draw(Pen& pen, double x, double y, double head) const override {
    head_.draw(pen, palette_, x, y, head);
    const Origin at{x, y + head};
    draw_axes(pen, at);
    if (empty_) {
      TextStyle style{.size = kTextSize};
      style.max_width = x_.to - x_.from;
      return pen.text(at.x + (x_.from + x_.to) / 2, at.y + height_ / 2, panel_.empty, style, palette_.soft,
                      Across::middle, Down::middle);
    }
    for (const ChartSeries& series : panel_.series) draw_error_bars(pen, at, series);
    int bar = 0;
    for (const ChartSeries& series : panel_.series) {
      if (by_category(series))
        draw_bars(pen, at, series, series.mark == ChartMark::bars ? bar++ : 0);
      else if (series.mark == ChartMark::dots)
        draw_dots(pen, at, series);
      else if (series.mark != ChartMark::points || series.joined)
        draw_line(pen, at, series);
    }
    // A series without a colour is drawn first, so that it hides no point of another one.
    for (const bool colourless : {true, false})
      for (const ChartSeries& series : panel_.series)
        if (series.mark == ChartMark::points && (series.sign < 0) == colourless) draw_points(pen, at, series);
    names_->draw(pen, palette_, at.x, at.y, foot_height() - names_->key_height());
    if (panel_.names == SeriesNames::at_line_ends) draw_line_names(pen, at);
  }

 private:
  struct Origin {
    double x, y;  // the panel's left edge, and the top of its plot
  };

  bool drawable(const ChartPoint& p) const {
    return x_.has(p.x.value) && (y_.has(p.y.value) || !panel_.categories.empty());
  }

  void make_scales() {
    AxisSpan x, y;
    for (const ChartSeries& series : panel_.series)
      for (const ChartPoint& p : series.points) {
        for (const double v : {p.x.value, p.x.low, p.x.high}) x.add(v);
        if (!by_category(series))
          for (const double v : {p.y.value, p.y.low, p.y.high}) y.add(v);
      }
    ChartAxis across = panel_.x;
    across.from_zero = across.from_zero || bars_ > 0;
    const bool with_points =
        std::ranges::any_of(panel_.series, [](const ChartSeries& s) { return s.mark == ChartMark::points; });
    x_ = make_axis_scale(across, x, with_points ? 0.06 : bars_ > 0 ? 0.02 : 0, 0, 1);
    y_ = make_axis_scale(panel_.y, y, with_points ? 0.08 : 0.04, height_, 0);
    y_ticks_ = axis_ticks(y_, static_cast<int>(height_ / kPerYTick));
    y_texts_ = tick_texts(y_, y_ticks_);
    empty_ = std::ranges::none_of(panel_.series, [&](const ChartSeries& series) {
      return std::ranges::any_of(series.points, [&](const ChartPoint& p) { return drawable(p); });
    });
    if (empty_) y_ticks_.clear(), y_texts_.clear();
  }

  void measure_sides(const Pen& pen) {
    category_style_.max_width = width_ * 0.42;
    category_style_.max_lines = 2;
    for (const std::string& text : panel_.categories.empty() ? y_texts_ : panel_.categories)
      left_ = std::max(left_, pen.measure(text, category_style_).width);
    left_ += kTickGap + (axis_text(panel_.y, true).empty() ? 0 : kTitleRow);
    right_ = 14;
    for (const ChartSeries& series : panel_.series) {
      if (panel_.names == SeriesNames::at_line_ends && !series.points.empty())
        right_ = std::max(right_, kEndNames + pen.measure(series.name, end_style()).width + 2);
      if (series.mark != ChartMark::bars) continue;
      for (const ChartPoint& p : series.points)
        if (x_.has(p.x.value)) right_ = std::max(right_, pen.measure(bar_text(p.x.value), kTickStyle).width + 12);
    }
  }

  TextStyle end_style() const { return {.size = kNameSize, .max_width = width_ * 0.3}; }

  void draw_axes(Pen& pen, Origin at) const {
    const double bottom = at.y + height_, right = at.x + x_.to, left = at.x + x_.from;
    pen.set_line(1);
    pen.set_colour(palette_.grid);
    for (const double tick : y_ticks_)
      if (panel_.categories.empty()) pen.line(left, at.y + y_.at(tick), right, at.y + y_.at(tick));
    if (!empty_)
      for (const double tick : x_ticks_) pen.line(at.x + x_.at(tick), at.y, at.x + x_.at(tick), bottom);
    pen.set_colour(palette_.frame);
    pen.set_line(1.2);
    pen.path(std::vector<Corner>{{left, at.y}, {left, bottom}, {right, bottom}});
    for (size_t i = 0; i < y_ticks_.size() && panel_.categories.empty(); ++i)
      pen.text(left - kTickGap, at.y + y_.at(y_ticks_[i]), y_texts_[i], kTickStyle, palette_.soft, Across::right,
               Down::middle);
    for (size_t i = 0; i < panel_.categories.size(); ++i)
      pen.text(left - kTickGap, at.y + category_middle(static_cast<double>(i)), panel_.categories[i], category_style_,
               palette_.ink, Across::right, Down::middle);
    draw_x_texts(pen, at);
    TextStyle title{.size = kTextSize};
    title.max_width = width_;
    pen.text(at.x + std::max((x_.from + x_.to) / 2, 0.0), bottom + kTickRow + 3, axis_text(panel_.x, false), title,
             palette_.ink, Across::middle);
    title.max_width = height_;
    if (const std::string text = axis_text(panel_.y, true); !text.empty())
      pen.upright_text(at.x + kTitleRow / 2 - 3, at.y + height_ / 2, text, title, palette_.ink);
  }

  void draw_x_texts(Pen& pen, Origin at) const {
    const auto texts = tick_texts(x_, x_ticks_);
    double free_from = -INFINITY;
    for (size_t i = 0; i < x_ticks_.size() && !empty_; ++i) {
      const double half = pen.measure(texts[i], kTickStyle).width / 2, middle = x_.at(x_ticks_[i]);
      if (middle - half < free_from) continue;
      free_from = middle + half + 8;
      pen.text(at.x + middle, at.y + height_ + 5, texts[i], kTickStyle, palette_.soft, Across::middle);
    }
  }

  void draw_error_bars(Pen& pen, Origin at, const ChartSeries& series) const {
    if (by_category(series)) return;
    pen.set_colour(series_colour(palette_, series.sign), 0.55);
    pen.set_line(1.4);
    for (const ChartPoint& p : series.points) {
      if (!drawable(p)) continue;
      const double x = at.x + x_.at(p.x.value), y = at.y + y_.at(p.y.value);
      if (x_.has(p.x.low) && x_.has(p.x.high)) pen.line(at.x + x_.at(p.x.low), y, at.x + x_.at(p.x.high), y);
      if (y_.has(p.y.low) && y_.has(p.y.high)) pen.line(x, at.y + y_.at(p.y.low), x, at.y + y_.at(p.y.high));
    }
  }

  double category_middle(double index) const {
    return height_ * (index + 0.5) / std::max<double>(1, static_cast<double>(panel_.categories.size()));
  }

  void draw_bars(Pen& pen, Origin at, const ChartSeries& series, int number) const {
    const Colour colour = series_colour(palette_, series.sign);
    for (const ChartPoint& p : series.points) {
      if (!x_.has(p.x.value) || !(p.y.value >= 0 && p.y.value < static_cast<double>(panel_.categories.size())))
        continue;
      const double middle = at.y + category_middle(p.y.value), thick = kBar * std::max(bars_, 1);
      const double x = at.x + x_.at(p.x.value), zero = at.x + x_.at(std::max(0.0, x_.low));
      pen.set_colour(colour);
      if (series.mark == ChartMark::limits) {
        pen.set_line(2.5);
        pen.line(x, middle - thick / 2 - 3, x, middle + thick / 2 + 3);
        continue;
      }
      const double top = middle - thick / 2 + kBar * number + 1, y = top + kBar / 2 - 1;
      pen.box(std::min(x, zero), top, std::abs(x - zero), kBar - 2);
      double end = x;
      if (x_.has(p.x.low) && x_.has(p.x.high) && p.x.high > p.x.low) {
        end = at.x + x_.at(p.x.high);
        pen.set_colour(palette_.ink);
        pen.set_line(1.4);
        pen.line(at.x + x_.at(p.x.low), y, end, y);
      }
      pen.text(std::max(end, x) + 6, y, bar_text(p.x.value), kTickStyle, palette_.ink, Across::left, Down::middle);
    }
  }

  // Returns the points of a series in runs without gaps. A point that cannot be drawn ends a run. If there are more
  // than kMaxPoints, every n-th is kept.
  std::vector<std::vector<Corner>> parts_of(Origin at, const ChartSeries& series) const {
    std::vector<std::vector<Corner>> parts(1);
    const size_t stride = std::max<size_t>(1, (series.points.size() + kMaxPoints - 1) / kMaxPoints);
    for (size_t i = 0; i < series.points.size(); i += stride) {
      const ChartPoint& p = series.points[i];
      if (!drawable(p)) {
        if (!parts.back().empty()) parts.emplace_back();
        continue;
      }
      const Corner corner{at.x + x_.at(p.x.value), at.y + y_.at(p.y.value)};
      if (series.mark == ChartMark::steps && !parts.back().empty())
        parts.back().push_back({corner.x, parts.back().back().y});
      parts.back().push_back(corner);
    }
    return parts;
  }

  void draw_line(Pen& pen, Origin at, const ChartSeries& series) const {
    pen.set_colour(series_colour(palette_, series.sign), series.joined ? 0.5 : 1);
    pen.set_line(series.joined || series.sign < 0 ? 1.4 : kLineWidth,
                 series.joined ? std::span<const double>() : series_dashes(series.sign));
    for (const auto& part : parts_of(at, series)) {
      if (part.size() > 1) pen.path(part);
      if (part.size() == 1 && !series.joined) pen.dots(part, kLineWidth);
    }
  }

  void draw_dots(Pen& pen, Origin at, const ChartSeries& series) const {
    pen.set_colour(series_colour(palette_, series.sign), 0.55);
    for (const auto& part : parts_of(at, series)) pen.dots(part, 1.7);
  }

  void draw_points(Pen& pen, Origin at, const ChartSeries& series) const {
    for (const ChartPoint& p : series.points)
      if (drawable(p))
        pen.marker(series_marker(series.sign), at.x + x_.at(p.x.value), at.y + y_.at(p.y.value), kMarkerRadius,
                   series_colour(palette_, series.sign), series.hollow, palette_.paper);
  }

  void draw_line_names(Pen& pen, Origin at) const {
    std::vector<const ChartSeries*> lines;
    std::vector<Corner> ends;
    std::vector<double> heights;
    for (const ChartSeries& series : panel_.series) {
      const auto parts = parts_of(at, series);
      const auto& last = parts.back().empty() && parts.size() > 1 ? parts[parts.size() - 2] : parts.back();
      if (series.name.empty() || last.empty()) continue;
      lines.push_back(&series);
      ends.push_back(last.back());
      heights.push_back(last.back().y);
    }
    const double row = pen.measure("Ag", end_style()).height;
    const auto rows = spread_rows(heights, row, at.y - 6, at.y + height_ + 6);
    const double x = at.x + x_.to + kEndNames;
    for (size_t i = 0; i < lines.size(); ++i) {
      const Colour colour = series_colour(palette_, lines[i]->sign);
      pen.set_colour(colour, 0.7);
      pen.set_line(1.2);
      pen.line(ends[i].x, ends[i].y, x - kEndSample - 6, rows[i]);
      pen.set_colour(colour);
      pen.set_line(kLineWidth, series_dashes(lines[i]->sign));  // a sample of the line leads to its name
      pen.line(x - kEndSample - 6, rows[i], x - 6, rows[i]);
      pen.text(x, rows[i], lines[i]->name, end_style(), palette_.ink, Across::left, Down::middle);
    }
  }

  const Palette& palette_;
  const ChartPanel& panel_;
  PanelHead head_;
  double width_, height_, left_ = 0, right_ = 0;
  AxisScale x_, y_;
  std::vector<double> x_ticks_, y_ticks_;
  std::vector<std::string> y_texts_;
  std::optional<PointNames> names_;
  TextStyle category_style_ = kTickStyle;
  int bars_ = 0;  // series of bars
  bool empty_ = false;
};

}  // namespace

std::unique_ptr<PanelDrawing> make_axes_drawing(const Pen& pen, const Palette& palette, const ChartPanel& panel,
                                                double width, double plot_height) {
  return std::make_unique<AxesDrawing>(pen, palette, panel, width, plot_height);
}

}  // namespace millrace
