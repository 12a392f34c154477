#include "picture/point_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "picture/panel_drawing.h"

namespace millrace {
namespace {

constexpr size_t kMaxNames = 120;  // of a panel; more would cover it
constexpr double kPadding = 1.5;

TextStyle name_style(const PlacedBox& frame) {
  return {.size = kNameSize, .max_width = std::min(210.0, (frame.right - frame.left) * 0.45), .max_lines = 3};
}

TextStyle key_style(const PlacedBox& frame) {
  return {.size = kNameSize, .max_width = frame.right - frame.left, .max_lines = 8};
}

}  // namespace

PointNames::PointNames(const Pen& pen, const ChartPanel& panel, const AxisScale& x, const AxisScale& y,
                       const PlacedBox& frame)
    : frame_(frame) {
  gather(pen, panel, x, y);
  numbered_.resize(texts_.size());
  placed_ = place_names(frame_, points_, kMarkerRadius, lines_);
  // Numbers take less space than names, but may take the places of others: a few rounds settle it.
  for (int round = 0; round < 4 && number_the_rest(pen); ++round)
    placed_ = place_names(frame_, points_, kMarkerRadius, lines_);
  if (!key_.empty()) key_height_ = pen.measure(key_, key_style(frame_)).height + 8;
}

void PointNames::gather(const Pen& pen, const ChartPanel& panel, const AxisScale& x, const AxisScale& y) {
  const TextStyle style = name_style(frame_);
  for (const bool muted : {false, true})  // the names of grey points take the places that are left
    for (const ChartSeries& series : panel.series) {
      if (series.mark != ChartMark::points || (series.sign < 0) != muted) continue;
      std::optional<Corner> before;
      for (const ChartPoint& p : series.points) {
        if (!x.has(p.x.value) || !y.has(p.y.value)) continue;
        const Corner at{x.at(p.x.value), y.at(p.y.value)};
        if (series.joined && before) lines_.push_back({before->x, before->y, at.x, at.y});
        before = at;
        if (x.has(p.x.low) && x.has(p.x.high)) lines_.push_back({x.at(p.x.low), at.y, x.at(p.x.high), at.y});
        if (y.has(p.y.low) && y.has(p.y.high)) lines_.push_back({at.x, y.at(p.y.low), at.x, y.at(p.y.high)});
        if (p.name.empty() || texts_.size() >= kMaxNames) continue;
        const TextSize size = pen.measure(p.name, style);
        texts_.push_back(p.name);
        points_.push_back({at.x, at.y, size.width + 2 * kPadding, size.height});
      }
    }
}

bool PointNames::number_the_rest(const Pen& pen) {
  bool changed = false;
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (placed_[i] || numbered_[i]) continue;
    const std::string number = fmt::format("[{}]", numbers_ + 1);
    const TextSize size = pen.measure(number, name_style(frame_));
    key_ += fmt::format("{}{} {}", key_.empty() ? "" : "   ", number, texts_[i]);
    ++numbers_;
    texts_[i] = number;
    numbered_[i] = true;
    points_[i].width = size.width + 2 * kPadding;
    points_[i].height = size.height;
    changed = true;
  }
  return changed;
}

void PointNames::draw(Pen& pen, const Palette& palette, double x, double y, double key) const {
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!placed_[i]) continue;
    const PlacedBox& box = placed_[i]->box;
    if (const auto& leader = placed_[i]->leader) {
      pen.set_colour(palette.frame);
      pen.set_line(1);
      pen.line(x + leader->x0, y + leader->y0, x + leader->x1, y + leader->y1);
    }
    pen.set_colour(palette.paper, 0.75);  // lines behind the name become faint
    pen.box(x + box.left, y + box.top + 1, box.right - box.left, box.bottom - box.top - 2);
    // Lines of a wrapped name begin where the name meets its point.
    const bool left_of_point = (box.left + box.right) / 2 < points_[i].x;
    pen.text(x + (left_of_point ? box.right - kPadding : box.left + kPadding), y + box.top, texts_[i],
             name_style(frame_), palette.ink, left_of_point ? Across::right : Across::left);
  }
  if (!key_.empty()) pen.text(x + frame_.left, y + frame_.bottom + key + 4, key_, key_style(frame_), palette.soft);
}

}  // namespace millrace
