// A heat map: rows from the top, columns from the left, each value written in its cell.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/axis_scale.h"
#include "picture/panel_drawing.h"

namespace millrace {
namespace {

constexpr double kCellHeight = 32, kCellWidest = 92, kSpace = 2, kLabelGap = 9, kHeatTitleRow = 22, kLabelRow = 22;
constexpr TextStyle kHeatLabelStyle{.size = kTickSize};
constexpr TextStyle kHeatTitleStyle{.size = kTextSize};

Colour mixed(Colour from, Colour to, double share) {
  const auto mix = [&](uint8_t a, uint8_t b) { return static_cast<uint8_t>(std::lround(a + share * (b - a))); };
  return {mix(from.r, to.r), mix(from.g, to.g), mix(from.b, to.b)};
}

// Perceived, between 0 and 1.
double brightness(Colour c) { return (0.299 * c.r + 0.587 * c.g + 0.114 * c.b) / 255; }

class HeatDrawing : public PanelDrawing {
 public:
  HeatDrawing(const Pen& pen, const Palette& palette, const ChartPanel& panel, double width)
      : palette_(palette), panel_(panel), map_(*panel.heat), head_(pen, panel, width), width_(width) {
    label_style_.max_width = width * 0.4;
    for (const std::string& row : map_.rows) left_ = std::max(left_, pen.measure(row, label_style_).width);
    left_ += kLabelGap + (axis_text(panel.y, true).empty() ? 0 : kHeatTitleRow);
    const double columns = std::max<double>(1, static_cast<double>(map_.columns.size()));
    cell_ = std::min((width - left_) / columns, kCellWidest);
    space_ = std::min(kSpace, cell_ * 0.2);
    double widest = 0;
    for (const std::string& column : map_.columns) widest = std::max(widest, pen.measure(column, label_style_).width);
    every_ = std::max<size_t>(1, static_cast<size_t>(std::ceil((widest + 6) / cell_)));
    with_numbers_ = cell_ - space_ > pen.measure(number(map_.high), kHeatLabelStyle).width + 4;
  }

  double head_height() const override { return head_.height(); }
  double plot_height() const override {
    return kCellHeight * std::max<double>(1, static_cast<double>(map_.rows.size()));
  }
  double foot_height() const override { return kLabelRow + (axis_text(panel_.x, false).empty() ? 0 : kHeatTitleRow); }

  void draw(Pen& pen, double x, double y, double head) const override {
    head_.draw(pen, palette_, x, y, head);
    const double top = y + head, left = x + left_, bottom = top + plot_height();
    for (size_t row = 0; row < map_.rows.size(); ++row) {
      const double at = top + kCellHeight * static_cast<double>(row);
      pen.text(left - kLabelGap, at + kCellHeight / 2, map_.rows[row], label_style_, palette_.soft, Across::right,
               Down::middle);
      for (size_t column = 0; column < map_.columns.size(); ++column) draw_cell(pen, row, column, left, at);
    }
    for (size_t column = 0; column < map_.columns.size(); column += every_)
      pen.text(left + cell_ * (static_cast<double>(column) + 0.5), bottom + 4, map_.columns[column], label_style_,
               palette_.soft, Across::middle);
    const double across = cell_ * static_cast<double>(map_.columns.size());
    TextStyle title = kHeatTitleStyle;
    title.max_width = width_;
    pen.text(std::max(left + across / 2, x + width_ * 0.2), bottom + kLabelRow + 4, axis_text(panel_.x, false), title,
             palette_.ink, Across::middle);
    title.max_width = plot_height();
    if (!axis_text(panel_.y, true).empty())
      pen.upright_text(x + kHeatTitleRow / 2 - 2, top + plot_height() / 2, axis_text(panel_.y, true), title,
                       palette_.ink);
  }

 private:
  std::string number(double value) const { return fmt::format("{:.{}f}", value, std::clamp(map_.digits, 0, 6)); }

  void draw_cell(Pen& pen, size_t row, size_t column, double left, double top) const {
    const double x = left + cell_ * static_cast<double>(column);
    const bool there = row < map_.values.size() && column < map_.values[row].size();
    const double value = there ? map_.values[row][column] : NAN;
    const double share = std::clamp((value - map_.low) / (map_.high - map_.low), 0.0, 1.0);
    const bool known = AxisSpan::counts(value) && std::isfinite(share);
    const Colour colour = known ? mixed(palette_.none, palette_.full, share) : palette_.paper;
    pen.set_colour(colour);
    pen.box(x, top, cell_ - space_, kCellHeight - kSpace);
    if (!with_numbers_) return;
    const bool on_dark = brightness(colour) < 0.55;
    pen.text(x + (cell_ - space_) / 2, top + (kCellHeight - kSpace) / 2, known ? number(value) : "\xe2\x80\x93",
             kHeatLabelStyle, on_dark ? Colour{255, 255, 255} : Colour{31, 35, 40}, Across::middle, Down::middle);
  }

  const Palette& palette_;
  const ChartPanel& panel_;
  const HeatMap& map_;
  PanelHead head_;
  double width_, left_ = 0, cell_ = 0;
  double space_ = 0;  // between cells of a row
  size_t every_ = 1;  // columns from one label to the next
  bool with_numbers_ = true;
  TextStyle label_style_ = kHeatLabelStyle;
};

}  // namespace

std::unique_ptr<PanelDrawing> make_heat_drawing(const Pen& pen, const Palette& palette, const ChartPanel& panel,
                                                double width) {
  return std::make_unique<HeatDrawing>(pen, palette, panel, width);
}

}  // namespace millrace
