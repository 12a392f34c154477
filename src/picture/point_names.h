// The names next to the points of a panel. A name that finds no free place is replaced by a number, which a key below
// the plot explains. Included by the files of this folder that draw, only.
#pragma once

#include <string>
#include <vector>

#include "picture/axis_scale.h"
#include "picture/chart.h"
#include "picture/label_placement.h"
#include "picture/pen.h"

namespace millrace {

class PointNames {
 public:
  // `frame`: the plot, in the coordinates of the scales. `pen`: measures text, during the call only.
  PointNames(const Pen& pen, const ChartPanel& panel, const AxisScale& x, const AxisScale& y, const PlacedBox& frame);

  // (x, y): where the origin of the scales is drawn. `key`: distance of the key from the lower edge of the plot.
  void draw(Pen& pen, const Palette& palette, double x, double y, double key) const;
  double key_height() const { return key_height_; }

 private:
  void gather(const Pen& pen, const ChartPanel& panel, const AxisScale& x, const AxisScale& y);
  // Replaces names without a place by numbers.
  bool number_the_rest(const Pen& pen);

  PlacedBox frame_;
  std::vector<std::string> texts_;
  std::vector<bool> numbered_;  // texts that are numbers already
  std::vector<NamedPoint> points_;
  std::vector<PlacedSegment> lines_;
  std::vector<std::optional<PlacedName>> placed_;
  std::string key_;
  double key_height_ = 0;
  int numbers_ = 0;
};

}  // namespace millrace
